import { Inject, Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common';

import { labelledKey, LockService, type KeyInput, type LossReason } from '../core/index.js';
import {
  DistributedLockModule,
  idempotencyOf,
  provideIdempotency,
  serveStandalone,
  type DistributedLockOptions,
  type StaticLockOptions,
} from '../nest/index.js';
import { TestBench, type LockTestingOptions, type TestKeyOptions } from './test-bench.js';
import type { TestStore } from './test-store.js';

type IdempotencyOptions = Pick<DistributedLockOptions, 'idempotency'>;
type TestModuleOptions = LockTestingOptions & StaticLockOptions & IdempotencyOptions;

@Module({})
class TestBenchModule {}

@Module({})
class LockTestingModule implements OnApplicationShutdown {
  constructor(
    @Inject(TestBench) private readonly bench: TestBench,
    @Inject(LockService) locks: LockService,
  ) {
    bench.watch(locks, idempotencyOf(locks)?.service);
  }

  /** What is held elsewhere would go on being renewed. */
  async onApplicationShutdown(): Promise<void> {
    await this.bench.reset();
  }
}

/**
 * Locks in memory for tests, and a hand on what happens to them.
 *
 * `install()`, and every boot of an application with `module()`, begins a new set of stores; everything else here works on
 * the one begun last. Options are those of the lock module; `stores` names further ones.
 */
export class LockTesting {
  static #bench: TestBench | undefined;
  static #installed: LockService | undefined;

  /**
   * From now on objects made with `new`, outside Nest, lock in memory, and their records of `@Idempotent` are kept there
   * unless the option `idempotency` says otherwise. Returns the service that they use.
   */
  static install(options: LockTestingOptions & IdempotencyOptions = {}): LockService {
    const bench = LockTesting.#begin(options);
    const locks = new LockService({ ...options, stores: bench.stores });
    const idempotency = options.idempotency ?? { store: bench.records };
    bench.watch(locks, provideIdempotency(locks, options, idempotency));
    serveStandalone(locks);
    LockTesting.#installed = locks;
    return locks;
  }

  /** Ends {@link install}: what is still held is lost for its holder. Twice is harmless. */
  static async uninstall(): Promise<void> {
    const locks = LockTesting.#installed;
    LockTesting.#installed = undefined;
    serveStandalone(undefined);
    await LockTesting.reset();
    await Promise.all([locks?.close(0), locks && idempotencyOf(locks)?.service.close({ graceMs: 0 })]);
  }

  /**
   * The lock module of an application under test, in the place of `DistributedLockModule.forRoot()`. Records of `@Idempotent`
   * are kept in memory as well, unless the option `idempotency` says otherwise.
   */
  static module(options: TestModuleOptions = {}): DynamicModule {
    const bench = {
      module: TestBenchModule,
      providers: [{ provide: TestBench, useFactory: () => LockTesting.#begin(options) }],
      exports: [TestBench],
    };
    const locks = DistributedLockModule.forRootAsync({
      imports: [bench],
      inject: [TestBench],
      useFactory: (begun: TestBench) => onBench(begun, options),
      filter: options.filter,
    });
    return { module: LockTestingModule, imports: [bench, locks] };
  }

  /**
   * Holds the key as another process would, until the returned function is called.
   *
   * @throws {LockTimeoutError} it is held already
   */
  static holdElsewhere(key: KeyInput, options: TestKeyOptions = {}): Promise<() => Promise<void>> {
    return LockTesting.#current().holdElsewhere(key, options);
  }

  /** Ends the lease that is held on `key`, as its holder will learn; the key is then free for others. */
  static async lose(
    key: KeyInput,
    reason: LossReason = 'taken-over',
    options: TestKeyOptions = {},
  ): Promise<void> {
    const bench = LockTesting.#current();
    const lease = bench.heldLease(key, options);
    if (!lease) throw new Error(`${nameOf(key)} is not held, so it cannot be lost. ${bench.describeHeld()}`);
    await bench.lose(lease, reason);
  }

  /** While `work` runs, no store answers. Calls that wait for a lock then take all of their `waitMs`. */
  static async unavailable<T>(work: () => Promise<T> | T): Promise<T> {
    const { stores, records } = LockTesting.#current();
    const outages = [...Object.values(stores), records].map((store) => store.fail());
    try {
      return await work();
    } finally {
      for (const end of outages) end();
    }
  }

  /** The fencing token that the last owner of `key` was given. Throws when there was none. */
  static tokenOf(key: KeyInput, options: TestKeyOptions = {}): number {
    const token = LockTesting.#current().lastToken(key, options);
    if (token === undefined) throw new Error(`${nameOf(key)} has not been locked, so it has no token.`);
    return token;
  }

  /** Throws an error that names what is still held or under way. Holds of {@link holdElsewhere} do not count. */
  static expectIdle(): void {
    const bench = LockTesting.#current();
    if (bench.heldLeases().length > 0) throw new Error(`Locks are still held. ${bench.describeHeld()}`);
    const running = bench.runningCalls().map((key) => `"${key}"`);
    if (running.length > 0) throw new Error(`Idempotent calls are still running: ${running.join(', ')}.`);
  }

  /** Frees everything that is held here and elsewhere, and forgets the answers of idempotent calls. For `afterEach`; nothing need have been begun. */
  static async reset(): Promise<void> {
    await LockTesting.#bench?.reset();
  }

  static #begin(options: LockTestingOptions): TestBench {
    return (LockTesting.#bench = new TestBench(options));
  }

  static #current(): TestBench {
    if (LockTesting.#bench) return LockTesting.#bench;
    throw new Error(
      'Call LockTesting.install(), or boot an application with LockTesting.module(), before this.',
    );
  }
}

function onBench({ stores, records }: TestBench, options: TestModuleOptions): DistributedLockOptions {
  const { default: store, ...named } = stores;
  return { idempotency: { store: records }, ...options, store: store as TestStore, stores: named };
}

function nameOf(key: KeyInput): string {
  return `"${labelledKey(key).key}"`;
}
