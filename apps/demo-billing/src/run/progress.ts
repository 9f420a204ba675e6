export interface Reached {
  readonly settled: number;
  readonly invoices: number;
  readonly pauses: number;
  readonly kills: number;
}

const LINE_EVERY_MS = 2_000;
const REDRAW_EVERY_MS = 100;

/** Shows how far the run is, on standard error: one line that is rewritten at a terminal, a new one now and then elsewhere. */
export class Progress {
  readonly #terminal: boolean;
  #shownAtMs = -Infinity;

  constructor(private readonly stream: NodeJS.WriteStream) {
    this.#terminal = stream.isTTY;
  }

  show(reached: Reached): void {
    const nowMs = performance.now();
    if (nowMs - this.#shownAtMs < (this.#terminal ? REDRAW_EVERY_MS : LINE_EVERY_MS)) return;
    this.#shownAtMs = nowMs;
    const { settled, invoices, pauses, kills } = reached;
    const text = `settled ${settled} of ${invoices}, ${pauses} workers paused, ${kills} killed`;
    this.stream.write(this.#terminal ? `\r\x1b[K${text}` : `${text}\n`);
  }

  note(line: string): void {
    this.end();
    this.stream.write(`${line}\n`);
  }

  /** Leaves the terminal's line empty for what comes next. */
  end(): void {
    if (this.#terminal) this.stream.write('\r\x1b[K');
  }
}
