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
  let ended = false;
  void Promise.all(worlds.map((world) => world.end())).finally(() => (ended = true));
  for (; !ended; await turn()) jest.advanceTimersByTime(roundMs);
}

/** Servers answer in real time, and are not to be timed out by {@link runRounds}: connect before. */
export function stopClocks(): void {
  jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate'] });
}
