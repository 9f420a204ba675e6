import { ConnectionSlots, type Slotted } from './connection-slots.js';
import { zookeeperStore, type ZooKeeperStoreOptions } from './index.js';
import { JuteFrames, JuteReader, JuteWriter } from './jute.js';
import { ownerData, ownerOf, pathOf } from './lock-node.js';
import { settingsOf } from './zookeeper-options.js';

const hosts = '127.0.0.1:1';

describe('zookeeperStore', () => {
  it.each<[string, object]>([
    ['no hosts', {}],
    ['an empty list of hosts', { hosts: [] }],
    ['a host without a port', { hosts: '127.0.0.1' }],
    ['a host with a protocol', { hosts: 'zookeeper://127.0.0.1:2181' }],
    ['a path behind the hosts', { hosts: '127.0.0.1:2181/app' }],
    ['a root that is no path', { hosts, root: 'locks' }],
    ['a root that ends in a slash', { hosts, root: '/locks/' }],
    ['a root that leads elsewhere', { hosts, root: '/locks/../app' }],
    ['no connection at all', { hosts, maxConnections: 0 }],
    ['a negative offset', { hosts, tokenOffset: -1 }],
  ])('refuses %s, and says what to write', (_, options) => {
    const refusal = expect.objectContaining({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringMatching(/write/),
    });
    expect(() => zookeeperStore(options as ZooKeeperStoreOptions)).toThrow(refusal);
  });

  it('takes hosts as a list and in one text, by name, number and in brackets', () => {
    expect(settingsOf({ hosts: 'a:1, b.example:2' }).hosts).toEqual(
      settingsOf({ hosts: ['a:1', 'b.example:2'] }).hosts,
    );
    expect(settingsOf({ hosts: '[::1]:2181' }).hosts).toEqual([{ host: '::1', port: 2181 }]);
  });

  it('answers nothing once it is closed', async () => {
    const store = zookeeperStore({ hosts });
    await store.close();
    const claim = { key: 'a', ownerId: 'a', ttlMs: 1_000 };
    await expect(store.tryAcquire(claim, 100)).rejects.toThrow('closed');
    await expect(store.renew([claim], 100)).rejects.toThrow('closed');
  });
});

describe('the node of a lock', () => {
  it('never reaches out of the root, and is another one for every key', () => {
    const keys = ['a', 'A', '.', '..', '/', 'a/b', 'a%2Fb', '../x', 'счёт', '\0', "'", '(a)', 'a b', '~'];
    const paths = keys.map((key) => pathOf('/locks', key));
    expect(new Set(paths).size).toBe(keys.length);
    for (const path of paths) expect(path).toMatch(/^\/locks\/[\w%-]+$/);
  });

  it('tells its owner, and is none when a session or a part is missing', () => {
    const data = ownerData('owner', { id: 5n, password: Buffer.from('secret') });
    const node = { data, createZxid: 1, sessionId: 5n };
    expect(ownerOf(node)).toEqual({ ownerId: 'owner', ticket: { id: 5n, password: Buffer.from('secret') } });
    expect(ownerOf({ ...node, sessionId: 0n })).toBeNull();
    for (const other of ['', 'x', '{}', 'null', '[]', '{"ownerId":1,"password":""}', '{"ownerId":"a"}']) {
      expect(ownerOf({ ...node, data: Buffer.from(other) })).toBeNull();
    }
  });
});

describe('the encoding', () => {
  it('gives back what was put in, however the stream was cut', () => {
    const frame = new JuteWriter()
      .int(-7)
      .long(2n ** 62n)
      .bool(true)
      .text('счёт')
      .bytes(Buffer.alloc(0))
      .frame();
    const stream = Buffer.concat([frame, frame, frame]);
    for (let size = 1; size <= stream.length; size += 7) {
      const frames = new JuteFrames();
      const read: unknown[] = [];
      for (let at = 0; at < stream.length; at += size) {
        for (const reader of frames.push(stream.subarray(at, at + size))) {
          read.push(reader.int(), reader.long());
        }
      }
      expect(read).toEqual([-7, 2n ** 62n, -7, 2n ** 62n, -7, 2n ** 62n]);
    }
  });

  it('refuses an answer that ends too early, and takes a length of -1 for nothing', () => {
    expect(() => new JuteReader(Buffer.alloc(3)).int()).toThrow('too early');
    expect(() => new JuteReader(new JuteWriter().int(9).frame().subarray(4)).bytes()).toThrow('too early');
    expect(new JuteReader(new JuteWriter().int(-1).frame().subarray(4)).text()).toBe('');
  });
});

describe('slots for connections', () => {
  const never = new AbortController().signal;
  const slotted = (inUse: boolean): Slotted & { vacated: number; inUse: boolean } => {
    const one = { inUse, vacated: 0, vacate: () => void (one.vacated += 1) };
    return one;
  };

  it('take the place of the longest idle, and wait while all are in use', async () => {
    const slots = new ConnectionSlots(2);
    const [busy, idle, next, last] = [slotted(true), slotted(false), slotted(true), slotted(true)];
    for (const each of [busy, idle, next]) await slots.enter(each, never);
    expect([busy.vacated, idle.vacated, next.vacated]).toEqual([0, 1, 0]);
    let entered = false;
    const entering = slots.enter(last, never).then(() => (entered = true));
    await Promise.resolve();
    expect(entered).toBe(false);
    busy.inUse = false;
    slots.changed(busy, false);
    await entering;
    expect(busy.vacated).toBe(1);
  });

  it('are not lost to somebody who gave up waiting', async () => {
    const slots = new ConnectionSlots(1);
    const [first, impatient, patient] = [slotted(true), slotted(true), slotted(true)];
    await slots.enter(first, never);
    const deadline = new AbortController();
    const gaveUp = slots.enter(impatient, deadline.signal).catch((error: unknown) => error);
    const entering = slots.enter(patient, never);
    deadline.abort();
    expect(await gaveUp).toMatchObject({ name: 'AbortError' });
    slots.changed(first, true);
    await entering;
  });
});
