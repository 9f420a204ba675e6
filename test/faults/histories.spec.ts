import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

import { LockService, memoryStore, type LockStore } from 'nestjs-distributed-lock';

import { itRunsBeside } from '../conformance/beside.js';
import { expectSoon } from '../conformance/expect-soon.js';
import { SectionHistory } from '../conformance/section-history.js';
import { describeWithServers, startProxy, type TcpProxy, type TestServer } from '../servers/index.js';
import { sessionLockKinds } from './session-lock-kinds.js';
import { storeKinds } from './store-kinds.js';

const TTL_MS = 2_000;
const WAIT_MS = 60_000;
const LONGEST_SECTION_MS = 60;
const SECTIONS = 12;
/** What an owner may be told in trouble: that its lease is lost, or that nobody knows. */
const TROUBLE = /^(?:LEASE_LOST|STORE_UNAVAILABLE|LOCK_TIMEOUT)$/;

const kinds = [
  ...storeKinds.map(({ kind, start, storeAt }) => ({ title: kind, start, storeAt })),
  ...sessionLockKinds.map((kind) => ({
    title: kind.title,
    start: () => kind.start(),
    storeAt: (port: number) => kind.store(kind.dataSource(port)),
  })),
];

describeWithServers(
  storeKinds.map(({ kind }) => kind),
  'owners of one key, and tokens, while their server is frozen for two ttls, restarts and is cut off',
  () => {
    itRunsBeside(
      kinds.map(({ title, start, storeAt }) => ({
        name: `are one at a time and rise on ${title}, and the key is free within two ttls and a second after the last`,
        run: async () => {
          const server = await start();
          try {
            await throughTrouble(server, storeAt);
          } finally {
            await server.stop();
          }
        },
      })),
      { limitMs: 240_000, together: 3 },
    );

    it('are seen to be several where nothing keeps them apart (positive control)', async () => {
      const history = new SectionHistory();
      const services = [memoryStore(), memoryStore()].map(serviceOn);
      const done = new AbortController();
      const owners = services.map((service) => new Owner(service, 'k', history));
      const work = owners.map((owner) => owner.workUntil(done.signal));
      await (owners[0] as Owner).stayInside(() => history.grownBy(1)); // who enters then is the other one
      done.abort();
      await Promise.all(work);
      expect(history.faults().join('\n')).toMatch(/two owners/);
      for (const service of services) await service.close(0);
    });
  },
);

async function throughTrouble(server: TestServer, storeAt: (port: number) => LockStore): Promise<void> {
  const proxy = await startProxy(server.port);
  const [key, done, history] = [randomUUID(), new AbortController(), new SectionHistory()];
  const services = [server.port, server.port, proxy.port].map((port) => serviceOn(storeAt(port)));
  for (const service of services) await service.open();
  const owners = services.map((service) => new Owner(service, key, history));
  const work = owners.map((owner) => owner.workUntil(done.signal));
  try {
    for (const trouble of [frozen, restarted, cutOff]) {
      await history.grownBy(SECTIONS);
      await (owners[2] as Owner).stayInside(() => trouble(server, proxy)); // behind the proxy
    }
    await history.grownBy(SECTIONS);
    done.abort();
    await Promise.all(work);
    expect(history.faults()).toEqual([]);
    const [beside, , last] = services as [LockService, LockService, LockService];
    // The last was cut off, and nothing was started again; what is measured beside was never behind the proxy.
    await expectSoon(last.acquire(key, { waitMs: WAIT_MS }), 2 * TTL_MS + 1_000, beside);
  } finally {
    done.abort();
    await Promise.all(services.map((service) => service.close(0)));
    await proxy.stop();
  }
}

async function frozen(server: TestServer): Promise<void> {
  server.pause();
  await pause(2 * TTL_MS + 200);
  server.resume();
}

async function restarted(server: TestServer): Promise<void> {
  await server.kill();
  await server.start();
}

async function cutOff(_server: TestServer, proxy: TcpProxy): Promise<void> {
  proxy.cut();
  await pause(TTL_MS * 1.5);
  await proxy.heal();
}

class Owner {
  /** Ends what it is inside of; undefined when its sections end by themselves. */
  #leave: AbortSignal | undefined;
  #entered: () => void = () => undefined;

  constructor(
    private readonly service: LockService,
    private readonly key: string,
    private readonly history: SectionHistory,
  ) {}

  /** Its sections end when it loses its lease, as those of an application should. */
  async workUntil(done: AbortSignal): Promise<void> {
    while (!done.aborted) {
      const held = this.service.withLock(this.key, { ttlMs: TTL_MS, waitMs: WAIT_MS }, async (lease) => {
        const leave = this.history.enter(lease.token);
        this.#entered();
        if (this.#leave) await aborted(AbortSignal.any([lease.signal, this.#leave]));
        else await pause(Math.random() * LONGEST_SECTION_MS);
        leave();
      });
      await held.catch((error: { readonly code?: string }) => {
        if (!TROUBLE.test(error.code ?? '')) throw error;
      });
    }
  }

  /** Is inside when `trouble` begins, and as long as its lease holds until it is over. */
  async stayInside(trouble: () => Promise<void>): Promise<void> {
    const over = new AbortController();
    const entered = new Promise<void>((resolve) => (this.#entered = resolve));
    this.#leave = over.signal;
    await entered;
    await trouble();
    this.#leave = undefined;
    over.abort();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
}

function serviceOn(store: LockStore): LockService {
  return new LockService({ stores: { default: store } });
}
