import { durationMs, ConsulError, limitsIn } from './consul-answer.js';
import { consulStore, type ConsulStoreOptions } from './index.js';
import { nameOf } from './key-name.js';
import { recordIn, transactionIn } from './transaction.js';

const url = 'http://127.0.0.1:1';

describe('consulStore', () => {
  it.each<[string, object]>([
    ['no url', {}],
    ['a url without http', { url: '127.0.0.1:8500' }],
    ['another protocol', { url: 'consul://127.0.0.1:8500' }],
    ['a user in the url', { url: 'http://user:secret@127.0.0.1:8500' }],
    ['a path in the url', { url: 'http://127.0.0.1:8500/v1' }],
    ['a list of urls', { url: [url] }],
    ['an empty token', { url, token: '' }],
    ['a token of two lines', { url, token: 'secret\nx-consul-namespace: other' }],
    ['an empty prefix', { url, keyPrefix: '' }],
    ['a prefix that begins with a slash', { url, keyPrefix: '/lock' }],
    ['a prefix that leads elsewhere', { url, keyPrefix: 'lock/../other/' }],
    ['a lock-delay that is text', { url, lockDelayMs: '15s' }],
    ['a negative lock-delay', { url, lockDelayMs: -1 }],
    ['a lock-delay that Consul would cut short', { url, lockDelayMs: 60_001 }],
    ['no connection for commands', { url, maxConnections: 1 }],
    ['a negative offset', { url, tokenOffset: -1 }],
    ['an offset that is text', { url, tokenOffset: '5' }],
  ])('refuses %s, says what to write, and never shows a secret', (_, options) => {
    const refusal = expect.objectContaining({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringMatching(/^(?!.*secret).*write/s),
    });
    expect(() => consulStore(options as ConsulStoreOptions)).toThrow(refusal);
  });

  it('answers nothing once it is closed', async () => {
    const store = consulStore({ url });
    await store.close();
    const claim = { key: 'a', ownerId: 'a', ttlMs: 1_000 };
    await expect(store.tryAcquire(claim, 100)).rejects.toThrow('closed');
    await expect(store.renew([claim], 100)).rejects.toThrow('closed');
    await expect(store.release({ ...claim, keepForMs: 0 }, 100)).rejects.toThrow('closed');
  });
});

describe('the name of a key', () => {
  it('consists of letters, digits, "_", "-" and dots in front of two hexadecimal digits', () => {
    expect(nameOf('lock/', 'invoice:42')).toBe('lock/invoice.3A42');
    expect(nameOf('lock/', '../другое?a=%2F')).toMatch(/^lock\/(?:[\w-]|\.[\dA-F]{2})+$/);
  });

  it('is that of no other key', () => {
    const keys = [
      'a',
      'A',
      'a.',
      'a.2E',
      'a/b',
      'a.2Fb',
      'a%2Fb',
      '..',
      '.',
      'é',
      'e\u0301',
      '💶',
      'a\0',
      'a ',
    ];
    expect(new Set(keys.map((key) => nameOf('lock/', key))).size).toBe(keys.length);
  });
});

describe('answers of Consul', () => {
  const answer = (status: number, body: string, index: number | null = null) => ({ status, body, index });

  it('tell that nothing is at a key only with an index: a 404 of something in between is no answer', () => {
    expect(recordIn(answer(404, '', 7))).toBeNull();
    expect(() => recordIn(answer(404, '404 page not found'))).toThrow('HTTP status 404');
  });

  it.each([
    [403, 'Permission denied'],
    [429, 'Your IP is issuing too many concurrent connections'],
    [500, 'No cluster leader'],
    [503, ''],
  ])('with status %d are errors with their text', (status, body) => {
    const refusal = expect.objectContaining({
      name: 'ConsulError',
      status,
      message: expect.stringContaining(body),
    });
    expect(() => recordIn(answer(status, body, 7))).toThrow(refusal);
    expect(() => transactionIn(answer(status, body))).toThrow(refusal);
  });

  it('that forbid a part of a transaction do not say that the lock is taken', () => {
    const errors = [{ OpIndex: 0, What: 'Permission denied' }];
    const forbidden = answer(409, JSON.stringify({ Results: null, Errors: errors }));
    expect(() => transactionIn(forbidden)).toThrow('Permission denied');
    expect(() => transactionIn(answer(409, '{"Results":null,"Errors":null}'))).toThrow('HTTP status 409');
  });

  it('are told from those of somebody else', () => {
    for (const body of ['<html>', '', '404 page not found']) {
      expect(() => transactionIn(answer(200, body))).toThrow(expect.objectContaining({ status: undefined }));
    }
  });

  it('tell whose a key is: ours, held or left behind, or a value of somebody else', () => {
    const read = (rest: object) =>
      recordIn(answer(200, JSON.stringify([{ CreateIndex: 5, ModifyIndex: 7, ...rest }])));
    const ours = Buffer.from('{"ownerId":"a"}').toString('base64');
    expect(read({ Value: ours, Session: 's' })).toMatchObject({
      ownerId: 'a',
      sessionId: 's',
      createIndex: 5,
    });
    expect(read({ Value: ours })).toMatchObject({ ownerId: 'a', sessionId: null, leftover: false });
    for (const Value of [ours, null, '']) {
      expect(read({ Value, LockIndex: 2 })).toMatchObject({
        sessionId: null,
        leftover: true,
        modifyIndex: 7,
      });
    }
    expect(read({ Value: 'eA==', LockIndex: 2 })).toMatchObject({ leftover: false });
    for (const Value of [null, 'eA==', 'bnVsbA==', 'eyJvd25lcklkIjo1fQ==']) {
      expect(read({ Value, Session: 's' })).toMatchObject({ ownerId: null, sessionId: 's' });
    }
  });
});

describe('the limits of sessions', () => {
  it.each([
    ["Invalid Session TTL '1', must be between [10s=24h0m0s]", { minMs: 10_000, maxMs: 86_400_000 }],
    ["Invalid Session TTL '1', must be between [200ms=24h0m0s]", { minMs: 200, maxMs: 86_400_000 }],
    ['Invalid Session TTL, and a text that nobody knows yet', { minMs: 10_000, maxMs: 86_400_000 }],
    ['No cluster leader', null],
  ])('are read from the refusal: %s', (message, limits) => {
    expect(limitsIn(new ConsulError(message, 500))).toEqual(limits);
    expect(limitsIn(new Error(message))).toBeNull();
  });

  it.each([
    ['10s', 10_000],
    ['1m30s', 90_000],
    ['1.5s', 1_500],
    ['500ms', 500],
    ['24h0m0s', 86_400_000],
    ['', NaN],
    ['5', NaN],
    ['-5s', NaN],
  ])('are durations as Go writes them: %s', (text, ms) => expect(durationMs(text)).toBe(ms));
});
