import { formatMoney } from '../money/money.js';
import { addsUp, staleWritesRefused, type Account } from './account.js';

const LABEL_WIDTH = 22;
const NUMBER_WIDTH = 6;
const MOST_PROBLEMS_SHOWN = 50;

/** The account for people. Every double charge is named. */
export function accountText(account: Account, { seed, unsafe }: { seed: number; unsafe: boolean }): string {
  const lines = [
    ...figures(account),
    ...totalLines(account),
    '',
    ...doubleChargeLines(account),
    ...problemLines(account),
    verdict(account, unsafe),
    `It took ${(account.durationMs / 1_000).toFixed(1)} s. --seed ${seed} strikes the same invoices again.`,
  ];
  return `${lines.join('\n')}\n`;
}

function figures(account: Account): string[] {
  const { leaseCheck, databaseGuard, gatewayToken } = account.refusals;
  return [
    figure('invoices', account.invoices),
    figure('settled', account.settled),
    figure('charges', account.charges),
    figure('double charges', account.doubleCharges),
    figure('stale writes refused', staleWritesRefused(account)) +
      `   by the lease check ${leaseCheck}, the database guard ${databaseGuard}, the gateway's token check ${gatewayToken}`,
    `${figure('duplicates prevented', account.duplicatesPrevented)}   by the gateway's idempotency keys`,
    ...repetitionFigures(account),
    figure('take-overs', account.takeOvers),
    figure('pauses', account.pauses),
    figure('kills', account.kills),
  ];
}

function repetitionFigures({ repetitions }: Account): string[] {
  const { messages, replayed, inProgress, furtherAttempts, paidOut } = repetitions;
  return [
    `${figure('messages', messages)}   two for each invoice`,
    `${figure('replayed', replayed)}   deliveries answered from the record`,
    `${figure('in progress', inProgress)}   deliveries that met the payout at work elsewhere: not acknowledged, sent again`,
    `${figure('further attempts', furtherAttempts)}   after a crash, a lost lease or a lost answer`,
    `${figure('paid on record', paidOut)}   invoices that the store of records calls done`,
  ];
}

function figure(label: string, value: number): string {
  return label.padEnd(LABEL_WIDTH) + String(value).padStart(NUMBER_WIDTH);
}

function totalLines({ totalsMinor }: Account): string[] {
  return [...totalsMinor]
    .sort(([one], [other]) => one.localeCompare(other))
    .map(
      ([currency, amountMinor], i) =>
        (i === 0 ? 'charged in total' : '').padEnd(LABEL_WIDTH) +
        formatMoney({ amountMinor, currency }).padStart(20),
    );
}

function doubleChargeLines({ doublyCharged }: Account): string[] {
  return doublyCharged.map(({ invoiceId, times }) => `invoice ${invoiceId} was charged ${times} times`);
}

function problemLines({ problems }: Account): string[] {
  const more = problems.length - MOST_PROBLEMS_SHOWN;
  return [...problems.slice(0, MOST_PROBLEMS_SHOWN), ...(more > 0 ? [`and ${more} more`] : [])];
}

function verdict(account: Account, unsafe: boolean): string {
  if (addsUp(account)) return 'The money adds up: every invoice was charged exactly once, to the last cent.';
  return unsafe
    ? 'The money does not add up: this is what a bare TTL lock does.'
    : 'THE MONEY DOES NOT ADD UP.';
}
