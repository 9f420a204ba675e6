/** The encoding of ZooKeeper's protocol: big-endian numbers, and lengths before texts and bytes. */
export class JuteWriter {
  readonly #parts: Buffer[] = [];

  int(value: number): this {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(value);
    return this.#add(bytes);
  }

  long(value: bigint): this {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64BE(value);
    return this.#add(bytes);
  }

  bool(value: boolean): this {
    return this.#add(Buffer.from([value ? 1 : 0]));
  }

  bytes(value: Buffer): this {
    return this.int(value.length).#add(value);
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  /** What was written, with its length in front. */
  frame(): Buffer {
    const body = Buffer.concat(this.#parts);
    return Buffer.concat([new JuteWriter().int(body.length).#joined(), body]);
  }

  #joined(): Buffer {
    return Buffer.concat(this.#parts);
  }

  #add(part: Buffer): this {
    this.#parts.push(part);
    return this;
  }
}

export class JuteReader {
  #at = 0;

  constructor(private readonly body: Buffer) {}

  int(): number {
    return this.body.readInt32BE(this.#skip(4));
  }

  long(): bigint {
    return this.body.readBigInt64BE(this.#skip(8));
  }

  bytes(): Buffer {
    const length = Math.max(0, this.int()); // -1 stands for none
    const from = this.#skip(length);
    return this.body.subarray(from, from + length);
  }

  text(): string {
    return this.bytes().toString();
  }

  #skip(length: number): number {
    const at = this.#at;
    this.#at += length;
    if (this.#at > this.body.length) throw new RangeError('the answer of ZooKeeper ends too early');
    return at;
  }
}

/** Cuts a stream into frames. */
export class JuteFrames {
  #rest: Buffer = Buffer.alloc(0);

  *push(chunk: Buffer): Generator<JuteReader> {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (this.#rest.length >= 4) {
      const end = 4 + this.#rest.readInt32BE();
      if (this.#rest.length < end) return;
      const frame = this.#rest.subarray(4, end);
      this.#rest = this.#rest.subarray(end);
      yield new JuteReader(frame);
    }
  }
}
