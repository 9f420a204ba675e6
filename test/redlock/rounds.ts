import { setImmediate as turn } from 'node:timers/promises';

/** One run of the store against an adversary of its own. */
export interface World {
  readonly working: boolean;
  /** Carries one command at most. */
  step(): Promise<void>;
  end(): Promise<void>;
}

/**
 * Worlds beside each other, all of which make one step in each round. Timers and clocks of this process are Jest's, and go on
 * by `roundMs` for each round: however slow the machine is, no patience of a store ends because of it.
 */
export async function runRounds(worlds: readonly World[], roundMs: number): Promise<void> {
  for (let working = worlds; working.length > 0; working = working.filter((world) => world.working)) {
    await Promise.all(working.map((world) => world.step()));
    jest.advanceTimersByTime(roundMs);
  }
  await whileTimePasses(Promise.all(worlds.map((world) => world.end())), roundMs);
}

/** Lets the stopped clocks go on, in real turns of the event loop, until `work` is over. */
export async function whileTimePasses(work: Promise<unknown>, turnMs: number): Promise<void> {
  let over = false;
  const ended = work.finally(() => (over = true));
  for (ended.catch(() => undefined); !over; await turn()) jest.advanceTimersByTime(turnMs);
  await ended;
}

/** Servers answer in real time, and are not to be timed out by {@link runRounds}: connect before. */
export function stopClocks(): void {
  jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate'] });
}
