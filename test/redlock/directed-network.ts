import { setImmediate as turn } from 'node:timers/promises';

import type { Adversary, Command } from './adversary.js';

/** The real clock, taken before a test puts a fake in its place: servers answer in real time. */
const nowMs = performance.now.bind(performance);
const LONGEST_WAIT_MS = 60_000;

/** Which command is meant. */
export type Which = Pick<Command, 'script' | 'server' | 'owner'>;

/** Delivers by hand what an {@link Adversary} holds back. */
export class DirectedNetwork {
  constructor(private readonly adversary: Adversary) {}

  /** It arrives, and so does its answer. Returned, to be delivered once more. Fails when nobody sent it. */
  async deliver(which: Which): Promise<Command> {
    const command = await this.#take(which);
    command.sender?.tell(await command.execute());
    await settle();
    return command;
  }

  async lose(which: Which): Promise<void> {
    (await this.#take(which)).sender?.fail(new Error('lost on its way'));
    await settle();
  }

  /** It is carried out, and its sender hears nothing of it. */
  async loseAnswer(which: Which): Promise<void> {
    const command = await this.#take(which);
    await command.execute();
    command.sender?.fail(new Error('its answer was lost'));
    await settle();
  }

  /** What an owner writes back arrives, until it has been told what came of its acquisition. */
  async deliverRaises(owner: string, told: Promise<unknown>): Promise<void> {
    let over = false;
    void told.finally(() => (over = true));
    for (; !over; await turn()) {
      const raise = this.adversary.pending.find((each) => each.script === 'raise' && each.owner === owner);
      if (raise) await this.deliver(raise);
    }
  }

  async #take(which: Which): Promise<Command> {
    const { pending } = this.adversary;
    const find = (): number =>
      pending.findIndex(
        ({ script, server, owner }) =>
          script === which.script && server === which.server && owner === which.owner,
      );
    const givesUpAtMs = nowMs() + LONGEST_WAIT_MS;
    while (find() < 0 && nowMs() < givesUpAtMs) await turn();
    const [command] = find() < 0 ? [] : pending.splice(find(), 1);
    if (!command) throw new Error(`nobody sent ${JSON.stringify(which)}`);
    return command;
  }
}

async function settle(): Promise<void> {
  for (let i = 0; i < 5; i += 1) await turn();
}
