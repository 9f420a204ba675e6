import { afterBodyBegan, hasCode } from './errors.js';
import { leaseLost } from './lease-errors.js';
import { Lease } from './lease.js';
import type { LossReason } from './lease-state.js';
import type { LeaseSurroundings, LeaseTerms, LeaseUser } from './lease-terms.js';
import { runInside, Section } from './section.js';

/** `body`: the hold ends with the work that runs under it. `handle`: it ends when its owner releases the lease. */
export type HoldEnd = 'body' | 'handle';

/** What a body came to, before anybody looked at the lease. */
type BodyResult<T> = { readonly value: T } | { readonly cause: unknown };

/**
 * A lease and all the work that runs under it in this process.
 *
 * Two things end apart: the lease in the store, and the work here. The next local caller is let in only when both are
 * over, so that exclusion inside one process holds even after a loss: a body that goes on keeps others out until it ends,
 * except past its `maxHoldMs`. A lost handle that nobody runs under lets them in at once, because it may never be released.
 */
export class Hold implements LeaseUser {
  readonly lease: Lease;
  /** The outermost section of work. An open handle counts as work. */
  readonly root: Section<Hold>;
  #releaseSettled = false;
  #handleOpen: boolean;
  #vacated = false;

  constructor(
    terms: LeaseTerms,
    around: LeaseSurroundings,
    private readonly endsWith: HoldEnd,
    private readonly onVacated: () => void,
  ) {
    this.#handleOpen = endsWith === 'handle';
    this.root = new Section<Hold>(this, around.clock, () => this.#rootCompleted());
    this.lease = new Lease(terms, around, this);
  }

  /** True while a nested call may join. */
  get open(): boolean {
    return !this.root.complete && this.lease.state.kind !== 'released';
  }

  async run<T>(work: () => Promise<T> | T): Promise<T> {
    this.root.begin();
    try {
      return await this.runIn(this.root, work);
    } finally {
      this.root.end();
    }
  }

  /**
   * Runs the body that this hold ends with, and gives the lock back after the last section of work.
   *
   * @throws {LeaseLostError} the lease ended first; the body's value or error is attached
   */
  async runToEnd<T>(body: () => Promise<T> | T): Promise<T> {
    const result = await runInside(this.root, () => resultOf(body));
    this.root.end();
    // Nested work that nobody awaited keeps the hold: the release then comes later, and what it says is an event.
    const gone = this.root.complete && (await this.#releaseAnswer()) === 'already-gone';
    return this.#conclude(result, gone);
  }

  /**
   * Runs `work` in `section`, and resolves with its result unless the lease was lost meanwhile.
   *
   * @throws {LeaseLostError} with the value or the error of `work`; a refusal that names the loss already is passed on
   */
  async runIn<T>(section: Section<Hold>, work: () => Promise<T> | T): Promise<T> {
    return this.#conclude(await runInside(section, () => resultOf(work)), false);
  }

  /** Gives back a lease whose body will not run after all. Never throws; an unanswered release is retried behind. */
  async abandon(): Promise<void> {
    if (this.endsWith === 'body') this.root.end();
    await this.#releaseAnswer();
  }

  leaseLost(reason: LossReason): void {
    this.#closeHandle();
    // A body that hangs past its maximum must not keep this process's other callers out as well.
    if (reason === 'max-hold') this.#vacate();
  }

  releaseSettled(): void {
    this.#releaseSettled = true;
    this.#closeHandle();
    this.#vacateIfOver();
  }

  /** `gone`: the store no longer knew the grant when it was given back. */
  #conclude<T>(result: BodyResult<T>, gone: boolean): T {
    const loss =
      this.lease.lossError(result) ?? (gone ? leaseLost(this.lease, 'taken-over', result) : undefined);
    if (!('cause' in result)) {
      if (loss) throw loss;
      return result.value;
    }
    if (loss && !hasCode(result.cause, 'LEASE_LOST', 'FENCED_OUT')) throw loss;
    throw afterBodyBegan(result.cause);
  }

  /** Undefined when the store did not answer: that has been told as an event, and is retried. */
  #releaseAnswer(): Promise<string | undefined> {
    return this.lease.release().catch(() => undefined);
  }

  #closeHandle(): void {
    if (!this.#handleOpen) return;
    this.#handleOpen = false;
    this.root.end();
  }

  #rootCompleted(): void {
    if (this.endsWith === 'body') void this.#releaseAnswer();
    this.#vacateIfOver();
  }

  #vacateIfOver(): void {
    const nobodyReleases = this.endsWith === 'handle' && this.lease.state.kind === 'lease-lost';
    if (this.root.complete && (this.#releaseSettled || nobodyReleases)) this.#vacate();
  }

  #vacate(): void {
    if (this.#vacated) return;
    this.#vacated = true;
    this.onVacated();
  }
}

/**
 * What `body` came to, also when it throws before it returns a promise. Called inside the context: a body may return a
 * thenable that does its work only when it is awaited.
 */
async function resultOf<T>(body: () => Promise<T> | T): Promise<BodyResult<T>> {
  try {
    return { value: await body() };
  } catch (cause) {
    return { cause };
  }
}
