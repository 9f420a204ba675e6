/** A message "settle this invoice". Delivered at least once, until somebody says that it is done. */
interface Message {
  readonly invoiceId: string;
  /** The worker that had it last and did not answer. */
  silentWorker: string | null;
  failures: number;
  waiting: boolean;
  done: boolean;
}

interface OpenDelivery {
  readonly message: Message;
  readonly worker: string;
  readonly visibility: NodeJS.Timeout;
}

export interface TakenDelivery {
  readonly deliveryId: number;
  readonly invoiceId: string;
}

export interface DeliveryQueueOptions {
  /** After this time without an answer a message is delivered again, while the first worker may still be at it. */
  readonly visibilityMs: number;
  /** Called when there may be something to take, or nothing is left to wait for. */
  readonly onChange: () => void;
}

const FIRST_RETRY_MS = 100;
const LONGEST_RETRY_MS = 2_000;

/**
 * The queue of messages, with the manners of the queues that people use: at least once, in no certain order, and again
 * after a failure, a death or too long a silence.
 */
export class DeliveryQueue {
  readonly #waiting: Message[];
  readonly #open = new Map<number, OpenDelivery>();
  readonly #retries = new Set<NodeJS.Timeout>();
  #unfinished: number;
  #lastDeliveryId = 0;

  constructor(
    invoiceIds: readonly string[],
    private readonly options: DeliveryQueueOptions,
  ) {
    this.#waiting = invoiceIds.map((invoiceId) => ({
      invoiceId,
      silentWorker: null,
      failures: 0,
      waiting: true,
      done: false,
    }));
    this.#unfinished = this.#waiting.length;
  }

  /** True when every message is done and every worker has answered, also those that were presumed dead. */
  get finished(): boolean {
    return this.#unfinished === 0 && this.#open.size === 0;
  }

  /**
   * The next message for `worker`, or null. A worker that kept silent over a message does not get it again, unless it
   * is the `only` one.
   */
  take(worker: string, only: boolean, suits: (invoiceId: string) => boolean): TakenDelivery | null {
    const i = this.#waiting.findIndex(
      (message) => (only || message.silentWorker !== worker) && suits(message.invoiceId),
    );
    const [message] = i < 0 ? [] : this.#waiting.splice(i, 1);
    if (!message) return null;
    message.waiting = false;
    const deliveryId = ++this.#lastDeliveryId;
    const visibility = setTimeout(() => this.#again(message, worker), this.options.visibilityMs);
    this.#open.set(deliveryId, { message, worker, visibility });
    return { deliveryId, invoiceId: message.invoiceId };
  }

  /** The message is done, whoever did it, and however late the answer comes. */
  done(deliveryId: number): void {
    const message = this.#close(deliveryId);
    if (message && !message.done) {
      message.done = true;
      this.#unfinished -= 1;
      this.#remove(message);
    }
    this.options.onChange();
  }

  /** The worker could not do it now: again after a while, longer each time. */
  retryLater(deliveryId: number): void {
    const message = this.#close(deliveryId);
    if (message && !message.done) {
      const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** message.failures, LONGEST_RETRY_MS);
      message.failures += 1;
      const timer = setTimeout(
        () => {
          this.#retries.delete(timer);
          this.#again(message, null);
        },
        pauseMs * (0.5 + Math.random() / 2),
      );
      this.#retries.add(timer);
    }
    this.options.onChange();
  }

  /** The worker is dead: to another one, at once. */
  workerDied(deliveryId: number): void {
    const open = this.#open.get(deliveryId);
    if (open) this.#again(open.message, open.worker);
    this.#close(deliveryId);
    this.options.onChange();
  }

  stop(): void {
    for (const { visibility } of this.#open.values()) clearTimeout(visibility);
    for (const timer of this.#retries) clearTimeout(timer);
  }

  #close(deliveryId: number): Message | undefined {
    const open = this.#open.get(deliveryId);
    clearTimeout(open?.visibility);
    this.#open.delete(deliveryId);
    return open?.message;
  }

  /** To the front: somebody has waited for it for a while. */
  #again(message: Message, silentWorker: string | null): void {
    message.silentWorker = silentWorker;
    if (message.done || message.waiting) return;
    message.waiting = true;
    this.#waiting.unshift(message);
    this.options.onChange();
  }

  #remove(message: Message): void {
    const i = this.#waiting.indexOf(message);
    if (i >= 0) this.#waiting.splice(i, 1);
    message.waiting = false;
  }
}
