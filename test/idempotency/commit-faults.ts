import type { DataSource } from 'typeorm';

/** What becomes of the next COMMIT. */
type Fate = (commit: () => Promise<unknown>) => Promise<unknown>;

/** Stands between the guards and the driver. */
export class CommitFaults {
  next: Fate | undefined;

  /** Before the guards are put on, so that it stands behind them. */
  readonly prepare = ({ driver }: DataSource): void => {
    const create = driver.createQueryRunner.bind(driver);
    const seen = new WeakSet<object>();
    driver.createQueryRunner = (mode) => {
      const runner = create(mode);
      if (seen.has(runner)) return runner;
      seen.add(runner);
      const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
      runner.query = (async (...args: unknown[]) => {
        const fate = args[0] === 'COMMIT' ? this.next : undefined;
        if (!fate) return query(...args);
        this.next = undefined;
        return fate(() => query('COMMIT'));
      }) as typeof runner.query;
      return runner;
    };
  };

  /** The next COMMIT is carried out, and its answer does not arrive. */
  loseNextAnswer(): void {
    this.next = async (commit) => {
      await commit();
      throw connectionLost();
    };
  }

  loseNextCommit(): void {
    this.next = () => Promise.reject(connectionLost());
  }
}

export function connectionLost(): Error {
  return Object.assign(new Error('connection lost'), { code: 'ECONNRESET' });
}
