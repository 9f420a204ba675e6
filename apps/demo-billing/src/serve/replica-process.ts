import type { ChildProcess } from 'node:child_process';

import { InputError } from '../command-line/input-error.js';
import type { FromReplica, ReplicaSettings } from '../http/main.js';
import { exited, startChild } from '../processes/parent-side.js';

const REPLICA_PROGRAM = new URL('../http/main.js', import.meta.url);
const GOODBYE_WITHIN_MS = 3_000;

/** One process of the HTTP application. */
export class ReplicaProcess {
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;

  constructor(settings: ReplicaSettings) {
    this.#child = startChild(REPLICA_PROGRAM, settings);
    this.#exited = exited(this.#child);
  }

  /**
   * Resolves with its address once it takes requests.
   *
   * @throws {InputError} it cannot start, for example because the port is taken
   */
  listening(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#child.on('message', (message: FromReplica) => {
        if (message.kind === 'listening') resolve(message.address);
        if (message.kind === 'not-started') reject(new InputError(`cannot serve: ${message.reason}`));
      });
      void this.#exited.then(() => reject(new Error('The application ended before it took requests.')));
    });
  }

  /** Resolves when it is gone, for whatever reason. */
  gone(): Promise<void> {
    return this.#exited;
  }

  /** Lets it answer what it has begun; kills it when that takes too long. */
  async stop(): Promise<void> {
    const limit = setTimeout(() => this.#child.kill('SIGKILL'), GOODBYE_WITHIN_MS);
    if (this.#child.connected) this.#child.send('stop', () => undefined); // a dead one is told by its exit
    await this.#exited;
    clearTimeout(limit);
  }
}
