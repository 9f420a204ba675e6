import { parseLine, parseLines } from './gateway-answer.js';
import { etcdStore, type EtcdStoreOptions } from './index.js';
import { leaseOf } from './lease-of.js';
import { afterPrefix } from './release-watch.js';

const hosts = 'http://127.0.0.1:1';

describe('etcdStore', () => {
  it.each<[string, object]>([
    ['no hosts', {}],
    ['an empty list of hosts', { hosts: [] }],
    ['a host without http', { hosts: '127.0.0.1:2379' }],
    ['another protocol', { hosts: 'etcd://127.0.0.1' }],
    ['a user in the address', { hosts: 'http://user:secret@127.0.0.1:2379' }],
    ['one host with and one without TLS', { hosts: [hosts, 'https://127.0.0.1:2'] }],
    ['an empty prefix', { hosts, keyPrefix: '' }],
    ['a negative offset', { hosts, tokenOffset: -1 }],
    ['an offset beyond 2^53', { hosts, tokenOffset: 2 ** 53 }],
    ['an offset that is text', { hosts, tokenOffset: '5' }],
  ])('refuses %s, and says what to write', (_, options) => {
    const refusal = expect.objectContaining({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringMatching(/write/),
    });
    expect(() => etcdStore(options as EtcdStoreOptions)).toThrow(refusal);
  });

  it('answers nothing once it is closed', async () => {
    const store = etcdStore({ hosts });
    await store.close();
    const claim = { key: 'a', ownerId: 'a', ttlMs: 1_000 };
    await expect(store.tryAcquire(claim, 100)).rejects.toThrow('closed');
    await expect(store.renew([claim], 100)).rejects.toThrow('closed');
  });
});

describe('answers of the gateway', () => {
  it.each([
    [
      'of a plain call',
      '{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}',
    ],
    [
      'of a stream',
      '{"error":{"grpc_code":5,"http_code":404,"message":"etcdserver: requested lease not found","http_status":"Not Found"}}',
    ],
    ['of etcd 3.6', '{"code":5,"message":"etcdserver: requested lease not found","details":[]}'],
  ])('are errors with their code: %s', (_, line) => {
    const refusal = { name: 'EtcdError', code: 5, message: 'etcdserver: requested lease not found' };
    expect(() => parseLine(line)).toThrow(expect.objectContaining(refusal));
  });

  it('are told from those of somebody else', () => {
    for (const line of ['<html>', '"OK"', 'null', '404 page not found']) {
      expect(() => parseLine(line)).toThrow(expect.objectContaining({ code: undefined }));
    }
  });

  it('are read line by line', () => {
    expect(parseLines('{"result":{"ID":"1"}}\n{"result":{"ID":"2"}}\n')).toHaveLength(2);
  });
});

describe('the lease of an owner', () => {
  it('is a positive number of 63 bits that depends on owner, key and length, and is the same each time', () => {
    const owner = { key: 'a', ownerId: '1' };
    const ids = [
      leaseOf(owner),
      leaseOf({ ...owner, key: 'b' }),
      leaseOf({ ...owner, ownerId: '2' }),
      leaseOf(owner, 1),
    ];
    expect(new Set(ids).size).toBe(4);
    expect(leaseOf({ ...owner })).toBe(ids[0]);
    for (const id of ids) {
      expect(BigInt(id) > 0n).toBe(true);
      expect(BigInt(id) < 2n ** 63n).toBe(true);
    }
  });
});

describe('the end of a prefix', () => {
  it('is the first key that does not begin with it', () => {
    expect(Buffer.from(afterPrefix('lock/')).toString()).toBe('lock0');
    for (const prefix of ['lock/', 'замок', 'a\u007f']) {
      const end = afterPrefix(prefix);
      expect(Buffer.compare(Buffer.from(`${prefix}\u{10ffff}`), end)).toBe(-1);
      expect(Buffer.compare(Buffer.from(prefix), end)).toBe(-1);
    }
  });
});
