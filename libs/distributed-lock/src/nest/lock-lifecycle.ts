import { Inject, Injectable, type BeforeApplicationShutdown } from '@nestjs/common';

import { LockService } from '../core/index.js';
import { idempotencyOf } from './idempotent/index.js';
import { LockEvents } from './lock-events.js';
import { retireLocks } from './locks-of-object.js';
import { DEFAULT_SHUTDOWN_GRACE_MS, type DistributedLockOptions } from './module-options.js';
import { LOCK_OPTIONS } from './tokens.js';

/** Gives every lock back when the application stops, and leaves no timer and no connection of ours behind. */
@Injectable()
export class LockLifecycle implements BeforeApplicationShutdown {
  constructor(
    @Inject(LockService) private readonly locks: LockService,
    @Inject(LockEvents) private readonly events: LockEvents,
    @Inject(LOCK_OPTIONS) private readonly options: DistributedLockOptions,
  ) {}

  /** Twice is harmless: a hybrid application calls it for each of its parts. */
  async beforeApplicationShutdown(): Promise<void> {
    const graceMs = this.options.shutdownGraceMs ?? DEFAULT_SHUTDOWN_GRACE_MS;
    const idempotency = idempotencyOf(this.locks);
    await Promise.all([this.locks.close(graceMs), idempotency?.service.close({ graceMs })]);
    retireLocks(this.locks);
    this.events.end();
  }
}
