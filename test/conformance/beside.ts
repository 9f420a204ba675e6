/** One case of a suite. */
interface Case {
  readonly name: string;
  run(): Promise<void>;
}

interface Rules {
  readonly limitMs: number;
  /** How many are on their way at once. Default 6. */
  readonly together?: number;
  isAlone?(name: string): boolean;
}

/**
 * One test per case. Cases have keys of their own, and wait for leases to end most of the time: so others begin while one is
 * waited for. Cases that are no good company come last, each by itself. Put first what takes longest.
 */
export function itRunsBeside(
  cases: readonly Case[],
  { limitMs, together = 6, isAlone = () => false }: Rules,
): void {
  const company = new Company(
    cases.filter(({ name }) => !isAlone(name)),
    together,
  );
  for (const each of company.cases) it(each.name, () => company.resultOf(each), limitMs);
  for (const { name, run } of cases.filter((each) => isAlone(each.name))) {
    const runAlone = async (): Promise<void> => {
      await company.ended();
      await run();
    };
    it(name, runAlone, limitMs);
  }
}

class Company {
  readonly #begun = new Map<Case, Promise<void>>();
  #unfinished = 0;
  #awaited = false;

  constructor(
    readonly cases: readonly Case[],
    private readonly together: number,
  ) {}

  async resultOf(each: Case): Promise<void> {
    this.#awaited = true;
    const result = this.#begun.get(each) ?? this.#begin(each);
    this.#beginMore();
    try {
      await result;
    } finally {
      this.#awaited = false;
    }
  }

  async ended(): Promise<void> {
    await Promise.allSettled(this.#begun.values());
  }

  /** Nothing begins behind the last test that was asked for. */
  #beginMore(): void {
    for (const each of this.cases) {
      if (!this.#awaited || this.#unfinished >= this.together) return;
      if (!this.#begun.has(each)) void this.#begin(each);
    }
  }

  #begin(each: Case): Promise<void> {
    this.#unfinished += 1;
    const running = each.run();
    this.#begun.set(each, running);
    const finish = (): void => {
      this.#unfinished -= 1;
      this.#beginMore();
    };
    running.then(finish, finish); // a failure is told by its own test
    return running;
  }
}
