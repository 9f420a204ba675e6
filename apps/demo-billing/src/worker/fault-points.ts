import type { Fault, Step } from '../faults/fault-plan.js';

/** The places in the work where the plan may strike this worker. Everywhere else they cost nothing. */
export class FaultPoints {
  #fault: Fault | undefined;

  /** `announce` tells the coordinator, which wakes this process again or kills it. */
  constructor(private readonly announce: (fault: Fault) => Promise<void>) {}

  /** What the delivery that is worked on from now on is to meet, if anything. */
  expect(fault: Fault | undefined): void {
    this.#fault = fault;
  }

  /** A pause stops this very line: the next one runs when the process is woken, before any timer and any message. */
  async reached(step: Step): Promise<void> {
    const fault = this.#fault;
    if (fault?.step !== step) return;
    this.#fault = undefined;
    await this.announce(fault);
    if (fault.kind === 'pause') process.kill(process.pid, 'SIGSTOP');
    else await new Promise(() => undefined); // until the kill
  }
}
