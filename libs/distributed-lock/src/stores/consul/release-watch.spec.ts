import { ReleaseWatch } from './release-watch.js';

interface Change {
  readonly index: number;
  readonly free: boolean;
}

/** What a server says to one query after the other; the last one is never answered. */
class Script {
  readonly askedFrom: number[] = [];
  readonly ended: AbortSignal[] = [];

  constructor(private readonly answers: (Change | Error)[]) {}

  async readChange(_: string, { index }: { readonly index: number }, signal: AbortSignal): Promise<Change> {
    this.askedFrom.push(index);
    this.ended.push(signal);
    const answer = this.answers.shift();
    if (answer instanceof Error) throw answer;
    return answer ?? new Promise((_resolve, reject) => signal.addEventListener('abort', reject));
  }
}

describe('who waits for a key of Consul', () => {
  let watch: ReleaseWatch;
  afterEach(() => watch.close());

  function listen(name = 'a'): { woken: number; stop(): void; hears(): boolean } {
    const seen = { woken: 0, stop: () => heard.stop(), hears: () => heard.hears };
    const heard = watch.watch(name, () => (seen.woken += 1));
    return seen;
  }

  it('asks from index to index, and from the beginning when the index has fallen', async () => {
    const script = new Script([
      { index: 10, free: false },
      { index: 12, free: true },
      { index: 5, free: false },
      { index: 5, free: false },
      { index: 6, free: false },
    ]);
    watch = new ReleaseWatch(script, 2);
    const seen = listen();
    await until(() => script.askedFrom.length === 6);
    expect(script.askedFrom).toEqual([0, 10, 12, 0, 5, 6]);
    expect(seen.woken).toBe(2); // when it began to hear, and when the key was free
    expect(seen.hears()).toBe(true);
  });

  it('hears nothing after a query that failed until the next one is answered, and is woken then', async () => {
    const script = new Script([{ index: 10, free: false }, new Error('reset'), new Error('refused')]);
    watch = new ReleaseWatch(script, 2);
    const seen = listen();
    await until(() => script.askedFrom.length === 4);
    expect(script.askedFrom).toEqual([0, 10, 0, 0]);
    expect(seen.hears()).toBe(false);
    expect(seen.woken).toBe(1);
  });

  it('shares one query with others for the same key, which ends with the last of them', async () => {
    const script = new Script([{ index: 10, free: false }]);
    watch = new ReleaseWatch(script, 2);
    const one = listen();
    await until(() => one.hears());
    const two = listen();
    await until(() => two.woken === 1); // nothing is told of what was before
    expect(script.askedFrom).toEqual([0, 10]);
    one.stop();
    expect(script.ended.at(-1)?.aborted).toBe(false);
    two.stop();
    two.stop();
    expect(script.ended.at(-1)?.aborted).toBe(true);
    expect(two.hears()).toBe(false);
  });

  it('hears nothing beyond the number of queries, until another one has ended', async () => {
    const script = new Script([
      { index: 1, free: false },
      { index: 1, free: false },
    ]);
    watch = new ReleaseWatch(script, 2);
    const [first, second, third] = ['a', 'b', 'c'].map((name) => listen(name));
    await until(() => first?.hears() === true && second?.hears() === true);
    expect(script.askedFrom).toHaveLength(4);
    expect(third?.hears()).toBe(false);
    first?.stop();
    await until(() => script.askedFrom.length === 5);
  });

  it('asks for nobody who comes after the end, and arms no timer', async () => {
    const script = new Script([]);
    watch = new ReleaseWatch(script, 2);
    watch.close();
    const seen = listen();
    await new Promise((resolve) => setImmediate(resolve));
    expect(script.askedFrom).toEqual([]);
    expect(seen.hears()).toBe(false);
  });
});

async function until(condition: () => boolean): Promise<void> {
  const startedAtMs = performance.now();
  while (!condition() && performance.now() - startedAtMs < 30_000)
    await new Promise((resolve) => setTimeout(resolve, 5));
  expect(condition()).toBe(true);
}
