import type { Fault, FaultPlan } from '../faults/fault-plan.js';
import type { Delivery, Failure, FromWorker } from '../worker/messages.js';
import { Dispatcher } from './dispatcher.js';
import { RunJournal } from './run-journal.js';
import type { WorkerProcess } from './worker-process.js';

const PAUSE: Fault = { kind: 'pause', step: 'after-read' };
const KILL: Fault = { kind: 'kill', step: 'after-read' };
const AWAY: Failure = { code: 'STORE_UNAVAILABLE', message: 'away', permanent: false };

/** A worker that does nothing by itself. */
class Puppet {
  delivery: Delivery | null = null;
  readonly ready = true;
  readonly wake = jest.fn();
  readonly kill = jest.fn();

  constructor(readonly name: string) {}

  get idle(): boolean {
    return this.delivery === null;
  }

  deliver(delivery: Delivery): void {
    this.delivery = delivery;
  }
}

describe('the dispatcher', () => {
  let workers: Puppet[];
  let journal: RunJournal;
  let dispatcher: Dispatcher;
  let finished: boolean;

  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => {
    dispatcher.stop();
    expect(jest.getTimerCount()).toBe(0);
    jest.useRealTimers();
  });

  const dispatch = (messages: string[], strikes: FaultPlan['strikes'] = new Map(), count = 4): void => {
    workers = Array.from({ length: count }, (_, i) => new Puppet(`w${i}`));
    journal = new RunJournal();
    finished = false;
    const pool = { size: count, missing: 0, ready: workers as unknown as WorkerProcess[] };
    dispatcher = new Dispatcher(pool, journal, {
      messages,
      strikes,
      pauseMs: 3_600,
      visibilityMs: 1_500,
      hungAfterMs: 30_000,
    });
    void dispatcher.finished().then(() => (finished = true));
  };
  const holding = (invoiceId: string): Puppet =>
    workers.find(({ delivery }) => delivery?.invoiceId === invoiceId) as Puppet;
  const says = (worker: Puppet, message: FromWorker): void => {
    if (message.kind === 'settled' || message.kind === 'failed') worker.delivery = null;
    dispatcher.said(worker as unknown as WorkerProcess, message);
  };
  const settles = (worker: Puppet, token = 1): void =>
    says(worker, { kind: 'settled', delivery: worker.delivery as Delivery, token });
  const fails = (worker: Puppet, failure: Partial<Failure> = {}): void =>
    says(worker, {
      kind: 'failed',
      delivery: worker.delivery as Delivery,
      failure: { ...AWAY, ...failure },
    });

  it('keeps every worker busy until everything is settled', async () => {
    dispatch(['a', 'b', 'c'], new Map(), 2);
    expect(workers.map(({ delivery }) => delivery?.invoiceId)).toEqual(['a', 'b']);
    settles(holding('a'));
    settles(holding('b'));
    settles(holding('c'));
    await Promise.resolve();
    expect(finished).toBe(true);
    expect(journal.settledInvoices).toBe(3);
  });

  it('hands out nothing and leaves no timer once it was stopped, whatever workers still say', () => {
    dispatch(['a', 'b', 'c'], new Map(), 2);
    dispatcher.stop();
    settles(holding('a'));
    expect(jest.getTimerCount()).toBe(0);
  });

  it('wakes a paused worker after its time, and has let another one take over meanwhile', async () => {
    dispatch(['a'], new Map([['a', PAUSE]]));
    const paused = holding('a');
    expect(paused.delivery?.fault).toEqual(PAUSE);
    says(paused, { kind: 'struck', fault: PAUSE });
    jest.advanceTimersByTime(1_500);
    const successor = workers.find((worker) => worker !== paused && worker.delivery) as Puppet;
    expect(successor.delivery).toEqual({ deliveryId: 2, invoiceId: 'a' });
    settles(successor);
    await Promise.resolve();
    expect(finished).toBe(false);
    jest.advanceTimersByTime(2_100);
    expect(paused.wake).toHaveBeenCalledTimes(1);
    says(paused, { kind: 'refused', by: 'lease-check' });
    fails(paused, { code: 'LEASE_LOST' });
    await Promise.resolve();
    expect(finished).toBe(true);
    expect([journal.pauses, journal.refusals('lease-check')]).toEqual([1, 1]);
  });

  it('kills where the plan says so, and delivers to somebody else', () => {
    dispatch(['a'], new Map([['a', KILL]]));
    const victim = holding('a');
    says(victim, { kind: 'struck', fault: KILL });
    expect(victim.kill).toHaveBeenCalled();
    workers.splice(workers.indexOf(victim), 1);
    dispatcher.died(victim as unknown as WorkerProcess);
    expect(holding('a').delivery).toEqual({ deliveryId: 2, invoiceId: 'a' });
    expect(journal.kills).toBe(1);
  });

  it('always leaves one worker out of the faults', () => {
    const ids = ['a', 'b', 'c', 'd', 'e'];
    dispatch(ids, new Map(ids.slice(0, 4).map((id) => [id, PAUSE])));
    expect(workers.map(({ delivery }) => delivery?.invoiceId)).toEqual(['a', 'b', 'c', 'e']);
    settles(holding('e'));
    expect(holding('d')).toBeUndefined();
    fails(holding('a'));
    expect(holding('d').delivery?.fault).toEqual(PAUSE);
  });

  it('keeps a fault for the next try when the first one never came to its step', () => {
    dispatch(['a'], new Map([['a', PAUSE]]), 1);
    fails(holding('a'));
    jest.advanceTimersByTime(100);
    expect(holding('a').delivery?.fault).toEqual(PAUSE);
    says(holding('a'), { kind: 'struck', fault: PAUSE });
    fails(holding('a'));
    jest.advanceTimersByTime(200);
    expect(holding('a').delivery?.fault).toBeUndefined();
  });

  it('strikes on a slow machine too: a worker that is late on its way to a fault is waited for', () => {
    dispatch(['a'], new Map([['a', PAUSE]]));
    const slow = holding('a');
    jest.advanceTimersByTime(5_000);
    expect(workers.filter(({ delivery }) => delivery)).toEqual([slow]);
    says(slow, { kind: 'struck', fault: PAUSE });
    expect(workers.filter(({ delivery }) => delivery?.invoiceId === 'a')).toHaveLength(2);
    expect(journal.pauses).toBe(1);
  });

  it('has both messages of an invoice out at the same time', () => {
    dispatch(['a', 'a', 'b']);
    expect(workers.map(({ delivery }) => delivery?.invoiceId)).toEqual(['a', 'a', 'b', undefined]);
  });

  it('never takes "in progress elsewhere" for done: it delivers again until somebody has an answer', async () => {
    dispatch(['a', 'a'], new Map(), 2);
    const [first, second] = workers as [Puppet, Puppet];
    fails(second, { code: 'IDEMPOTENCY_IN_PROGRESS' });
    settles(first);
    await Promise.resolve();
    expect(finished).toBe(false);
    expect([journal.inProgress, journal.replays]).toEqual([1, 0]);
    jest.advanceTimersByTime(100);
    says(first, { kind: 'replayed' });
    says(first, { kind: 'settled', delivery: first.delivery as Delivery, token: null });
    await Promise.resolve();
    expect(finished).toBe(true);
    expect([journal.inProgress, journal.replays, journal.settledInvoices]).toEqual([1, 1, 1]);
  });

  it('gives up what can never be settled, and says so', async () => {
    dispatch(['a']);
    fails(holding('a'), { code: 'UNFENCED_WRITE', message: 'no token', permanent: true });
    await Promise.resolve();
    expect(finished).toBe(true);
    expect(journal.incidents).toEqual(['invoice a cannot be settled: UNFENCED_WRITE: no token']);
  });

  it('ends a worker that hangs, and calls it an incident', () => {
    dispatch(['a'], new Map(), 1);
    const hung = holding('a');
    jest.advanceTimersByTime(30_000);
    expect(hung.kill).toHaveBeenCalled();
    expect(journal.incidents).toEqual(['w0 did not answer for 30 s']);
  });
});
