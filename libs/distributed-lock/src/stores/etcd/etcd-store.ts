import {
  NativeTokens,
  withDeadline,
  type Busy,
  type Claim,
  type Grant,
  type KeyWatch,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';
import { checkCluster } from './boot-check.js';
import { EtcdCommands, type KeyRecord } from './etcd-commands.js';
import { settingsOf, type EtcdStoreOptions } from './etcd-options.js';
import { Gateway } from './gateway.js';
import { leaseOf } from './lease-of.js';
import { ReleaseWatch } from './release-watch.js';

/**
 * Locks in etcd 3.4 or newer, through its JSON gateway and without a client library.
 *
 * A lock is one key under one lease of its own. Its token is the revision that created the key plus `tokenOffset`:
 * revisions rise with every change of the cluster, and fall only when it is restored from an older snapshot or loses its
 * data. A process that has seen a higher revision then refuses to take locks; raise `tokenOffset` above the last token.
 *
 * etcd counts in whole seconds, keeps no lease shorter than its election allows, and ends leases up to half a second
 * late. It cannot keep a key after its release, so `minHoldMs` is refused.
 *
 * @throws {LockConfigInvalidError} hosts, prefix, credentials or offset make no sense
 */
export function etcdStore(options: EtcdStoreOptions): LockStore {
  const { gateway, keyPrefix, tokenOffset } = settingsOf(options);
  return new EtcdStore(new Gateway(gateway), keyPrefix, tokenOffset);
}

class EtcdStore implements LockStore {
  readonly kind = 'etcd';
  readonly keepsReleasedKeys = false;
  readonly #commands: EtcdCommands;
  readonly #tokens: NativeTokens;
  readonly #watch: ReleaseWatch;
  /** The shortest lease of the server: what it made of the shortest that we asked for. */
  #minSeconds = 1;

  constructor(
    private readonly gateway: Gateway,
    private readonly keyPrefix: string,
    tokenOffset: number,
  ) {
    this.#tokens = new NativeTokens('revision of etcd', tokenOffset);
    this.#commands = new EtcdCommands(gateway);
    this.#watch = new ReleaseWatch(gateway, keyPrefix);
  }

  get minTtlMs(): number {
    return this.#minSeconds * 1_000;
  }

  async open(): Promise<void> {
    this.#minSeconds = await checkCluster(this.#commands, this.gateway.address, this.keyPrefix);
  }

  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    return withDeadline(timeoutMs, async (signal) => {
      const [record = null] = await this.#commands.read([this.#keyOf(claim)], signal);
      return record ? this.#found(claim, record, signal) : this.#create(claim, signal);
    });
  }

  renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    return withDeadline(timeoutMs, (signal) => this.#renew(claims, signal));
  }

  release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    return withDeadline(timeoutMs, async (signal) => {
      const removed = await this.#commands.remove(this.#keyOf(request), request.ownerId, signal);
      const leases = new Set([leaseOf(request), removed?.leaseId ?? leaseOf(request)]);
      const revoked = Promise.all([...leases].map((id) => this.#commands.revokeLease(id, signal)));
      // With the key gone, a lease is empty and ends by itself. Without it, an acquire may still be under way: unknown.
      await (removed ? revoked.catch(() => undefined) : revoked);
      return removed ? 'released' : 'not-owner';
    });
  }

  watch(key: string, wake: () => void): KeyWatch {
    return this.#watch.watch(key, wake);
  }

  close(): Promise<void> {
    this.#watch.close();
    this.gateway.close();
    return Promise.resolve();
  }

  #keyOf({ key }: { readonly key: string }): string {
    return this.keyPrefix + key;
  }

  async #create(claim: Claim, signal: AbortSignal): Promise<Grant | Busy> {
    const leaseId = leaseOf(claim);
    const kept = await this.#commands.grantLease(leaseId, secondsOf(claim), signal);
    if (kept < secondsOf(claim))
      throw new Error(`etcd keeps the lease for ${kept} s only, which is too short`);
    const newestBefore = this.#tokens.newest;
    const { created, record } = await this.#commands.create(
      this.#keyOf(claim),
      claim.ownerId,
      leaseId,
      signal,
    );
    if (created && record) return this.#tokens.grant(record.createRevision, newestBefore);
    if (record?.value !== claim.ownerId) await this.#commands.revokeLease(leaseId, signal);
    return record ? this.#found(claim, record, signal) : { kind: 'busy', retryAfterMs: 0 };
  }

  async #found(claim: Claim, record: KeyRecord, signal: AbortSignal): Promise<Grant | Busy> {
    if (record.value === claim.ownerId) return this.#sentTwice(claim, record, signal);
    if (record.leaseId === '0') {
      const key = JSON.stringify(this.#keyOf(claim));
      throw new Error(
        `etcd key ${key} is not usable as a lock: it holds a value that never expires. ` +
          'Nothing was locked; remove that key, or choose another keyPrefix.',
      );
    }
    // Rounded up, because etcd rounds down; without an answer the key is taken all the same.
    const asked = this.#commands.remainingSeconds(record.leaseId, signal).catch(() => null);
    const seconds = await asked;
    return { kind: 'busy', retryAfterMs: seconds === null ? null : (seconds + 1) * 1_000 };
  }

  async #sentTwice(claim: Claim, record: KeyRecord, signal: AbortSignal): Promise<Grant> {
    const [answer] = await this.#renew([claim], signal);
    if (answer !== 'renewed') throw new Error('the grant ended while it was asked for again');
    return this.#tokens.grant(record.createRevision, 0);
  }

  /**
   * Leases first, then a read that a majority agrees to: a member that was cut off from the others may still keep leases
   * alive that have ended, but cannot answer the read.
   */
  async #renew(claims: readonly Claim[], signal: AbortSignal): Promise<readonly RenewalAnswer[]> {
    if (claims.length === 0) return [];
    const leases = claims.map((claim) => leaseOf(claim));
    const keys = claims.map((claim) => this.#keyOf(claim));
    const kept = await this.#commands.keepAlive(leases, signal);
    const records = await this.#commands.read(keys, signal);
    return Promise.all(
      claims.map((claim, i): Promise<RenewalAnswer> => {
        const record = records[i];
        if (record?.value !== claim.ownerId) return Promise.resolve('lost');
        if (record.leaseId !== leaseOf(claim)) return this.#moveToLease(claim, signal);
        if (kept[i] === 0) return Promise.resolve('lost'); // etcd is about to delete the key
        return kept[i] === this.#keptSeconds(claim)
          ? Promise.resolve('renewed')
          : this.#moveToLease(claim, signal);
      }),
    );
  }

  /** A lease keeps its length for ever: another ttl needs another lease. The old one ends by itself, empty. */
  async #moveToLease(claim: Claim, signal: AbortSignal): Promise<RenewalAnswer> {
    const seconds = secondsOf(claim);
    const leaseId = leaseOf(claim, seconds);
    const kept = await this.#commands.grantLease(leaseId, seconds, signal);
    if (kept < seconds) throw new Error('the lease ended while it was renewed');
    const moved = await this.#commands.moveToLease(this.#keyOf(claim), claim.ownerId, leaseId, signal);
    if (moved) return 'renewed';
    await this.#commands.revokeLease(leaseId, signal).catch(() => undefined); // it is empty, and ends by itself
    return 'lost';
  }

  #keptSeconds(claim: Claim): number {
    return Math.max(secondsOf(claim), this.#minSeconds);
  }
}

/** etcd counts in seconds; a lease is better a little longer in the store than in its holder's mind. */
function secondsOf({ ttlMs }: Claim): number {
  return Math.ceil(ttlMs / 1_000);
}
