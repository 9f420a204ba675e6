import type { ConsulAnswer } from './consul-answer.js';
import type { ConsulRequest } from './consul-client.js';
import { ConsulCommands } from './consul-commands.js';

const signal = new AbortController().signal;

/** Commands of an agent that gives these answers, one after the other. */
function commandsWith(...answers: Partial<ConsulAnswer>[]): {
  commands: ConsulCommands;
  asked: ConsulRequest[];
} {
  const asked: ConsulRequest[] = [];
  const ask = (request: ConsulRequest): Promise<ConsulAnswer> => {
    asked.push(request);
    return Promise.resolve({ status: 200, body: '', index: null, ...answers.shift() });
  };
  return { commands: new ConsulCommands({ ask, askAndWait: ask }), asked };
}

const refused = (...places: number[]): Partial<ConsulAnswer> => ({
  status: 409,
  body: JSON.stringify({
    Results: null,
    Errors: places.map((OpIndex) => ({ OpIndex, What: 'failed session check' })),
  }),
});
/** What Consul says of keys that this session holds. */
const heldBy = (Session: string, count: number): Partial<ConsulAnswer> => {
  const record = { KV: { Session, CreateIndex: 5, ModifyIndex: 5 } };
  return { body: JSON.stringify({ Results: Array.from({ length: count }, () => record), Errors: null }) };
};

describe('commands of Consul', () => {
  it('take a session for ended only when Consul itself says so', async () => {
    const { commands } = commandsWith(
      { status: 404, body: "Session id 's-1' not found" },
      { status: 404, body: '404 page not found' },
      { status: 500, body: 'No cluster leader' },
      { body: '[{"ID":"s-1","TTL":"1500ms"}]' },
    );
    expect(await commands.renewSession('s-1', signal)).toBeNull();
    await expect(commands.renewSession('s-1', signal)).rejects.toThrow('404');
    await expect(commands.renewSession('s-1', signal)).rejects.toThrow('No cluster leader');
    expect(await commands.renewSession('s-1', signal)).toBe(1_500);
  });

  it('take a key for held only in a transaction that was not refused, whatever the refusal names', async () => {
    const keys = ['a', 'b', 'c'].map((name) => ({ name, sessionId: 's' }));
    const { commands, asked } = commandsWith(refused(0), refused(1), heldBy('s', 1));
    expect([...(await commands.heldOf(keys, signal))]).toEqual([keys[1]]);
    expect(asked).toHaveLength(3);
    await expect(commandsWith(refused(7)).commands.heldOf(keys, signal)).rejects.toThrow(
      'failed session check',
    );
  });

  it('ask for no more keys in one transaction than Consul takes, and for none when there are none', async () => {
    const keys = Array.from({ length: 130 }, (_, i) => ({ name: `k${i}`, sessionId: 's' }));
    const { commands, asked } = commandsWith(heldBy('s', 64), heldBy('s', 64), heldBy('s', 2));
    expect((await commands.heldOf(keys, signal)).size).toBe(130);
    expect(asked.map(({ body }) => (body as unknown[]).length)).toEqual([64, 64, 2]);
    expect((await commands.heldOf([], signal)).size).toBe(0);
    expect(asked).toHaveLength(3);
  });

  it('do not take a query for answered that says nothing to go on from', async () => {
    const { commands } = commandsWith(
      { body: '[{"Session":"s","CreateIndex":5}]' },
      { status: 404, index: 0 },
      { status: 404, index: 7 },
    );
    const from = { index: 5, waitMs: 1 };
    await expect(commands.readChange('k', from, signal)).rejects.toThrow('without an index');
    await expect(commands.readChange('k', from, signal)).rejects.toThrow('without an index');
    expect(await commands.readChange('k', from, signal)).toEqual({ index: 7, free: true });
  });

  it.each([
    '<html>',
    '',
    '{}',
    '[]',
    'null',
    '5',
    '"x"',
    '[{}]',
    '[null]',
    '[{"TTL":"60000ms"}]',
    '{"Results":[],"Errors":null}',
    '{"Results":[{}],"Errors":null}',
    '{"Results":[{"KV":{"Session":"other","CreateIndex":5}}],"Errors":null}',
  ])('take %s, said with status 200 by something in between, for no answer at all', async (body) => {
    const key = { name: 'k', sessionId: 's' };
    const asks: ((commands: ConsulCommands) => Promise<unknown>)[] = [
      (commands) => commands.read('k', signal),
      (commands) => commands.renewSession('s', signal),
      (commands) => commands.destroySession('s', signal),
      (commands) => commands.createSession({ name: 'k', ttlMs: 1, lockDelayMs: 0 }, signal),
      (commands) => commands.lock(key, 'a', null, signal),
      (commands) => commands.move({ ...key, sessionId: 'r' }, 'a', 's', signal),
      (commands) => commands.remove(key, signal),
      (commands) => commands.heldOf([key], signal),
    ];
    for (const ask of asks) await expect(ask(commandsWith({ body, index: 7 }).commands)).rejects.toThrow();
  });

  it('do not take a lock for made when what was made is held by another session', async () => {
    const body = JSON.stringify({ Results: [{ KV: { Session: 'other', CreateIndex: 5 } }], Errors: null });
    const { commands } = commandsWith({ body });
    await expect(commands.lock({ name: 'k', sessionId: 's' }, 'a', null, signal)).rejects.toThrow(
      'without what it is about',
    );
  });
});
