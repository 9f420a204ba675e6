import 'reflect-metadata';

import { followParent, ownSettings, tellParent } from '../processes/child-side.js';
import { boot, type Booted } from './boot.js';
import { FaultPoints } from './fault-points.js';
import type { FromWorker, ToWorker } from './messages.js';
import { WorkerDesk } from './worker-desk.js';
import type { WorkerSettings } from './worker-settings.js';

/** sysexits.h: "temporary failure, the user is invited to retry". */
const EXIT_NOT_STARTED = 75;

const tell = (message: FromWorker): Promise<void> => tellParent(message);

followParent((error) =>
  tell({ kind: 'unhandled', message: error instanceof Error ? String(error.stack) : String(error) }),
);

const faults = new FaultPoints((fault) => tell({ kind: 'struck', fault }));
const desk = new WorkerDesk(faults, tell);

try {
  work(await boot(ownSettings<WorkerSettings>(), faults, (news) => desk.heard(news)));
} catch (error) {
  await tell({ kind: 'not-started', reason: String(error) });
  process.exit(EXIT_NOT_STARTED);
}

function work({ app, biller }: Booted): void {
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'settle') void desk.take(message.delivery, biller);
    else void app.close().finally(() => process.exit(0));
  });
  void tell({ kind: 'ready' });
}
