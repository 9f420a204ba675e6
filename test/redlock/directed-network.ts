import { setImmediate as turn } from 'node:timers/promises';

import type { Adversary, Command } from './adversary.js';

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

  async #take(which: Which): Promise<Command> {
    const { pending } = this.adversary;
    const find = (): number =>
      pending.findIndex(
        ({ script, server, owner }) =>
          script === which.script && server === which.server && owner === which.owner,
      );
    for (let i = 0; i < 200 && find() < 0; i += 1) await settle();
    const [command] = find() < 0 ? [] : pending.splice(find(), 1);
    if (!command) throw new Error(`nobody sent ${JSON.stringify(which)}`);
    return command;
  }
}

async function settle(): Promise<void> {
  for (let i = 0; i < 5; i += 1) await turn();
}
