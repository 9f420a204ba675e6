import { DeliveryQueue } from './delivery-queue.js';

const VISIBILITY_MS = 1_000;
const any = (): boolean => true;

describe('the queue of deliveries', () => {
  let changes: number;
  const queueOf = (...ids: string[]) =>
    new DeliveryQueue(ids, { visibilityMs: VISIBILITY_MS, onChange: () => (changes += 1) });

  beforeEach(() => {
    changes = 0;
    jest.useFakeTimers();
  });
  afterEach(() => {
    expect(jest.getTimerCount()).toBe(0);
    jest.useRealTimers();
  });

  it('hands out each message once, and is finished when all of them are done', () => {
    const queue = queueOf('a', 'b');
    const first = queue.take('w1', false, any);
    const second = queue.take('w2', false, any);
    expect([first?.invoiceId, second?.invoiceId]).toEqual(['a', 'b']);
    expect(queue.take('w3', false, any)).toBeNull();
    queue.done(first?.deliveryId as number);
    expect(queue.finished).toBe(false);
    queue.done(second?.deliveryId as number);
    expect(queue.finished).toBe(true);
  });

  it('delivers again to somebody else when a worker keeps silent, and waits for the silent one in the end', () => {
    const queue = queueOf('a');
    const silent = queue.take('w1', false, any);
    jest.advanceTimersByTime(VISIBILITY_MS);
    expect(changes).toBe(1);
    expect(queue.take('w1', false, any)).toBeNull();
    const again = queue.take('w2', false, any);
    expect(again?.invoiceId).toBe('a');
    queue.done(again?.deliveryId as number);
    expect(queue.finished).toBe(false);
    queue.retryLater(silent?.deliveryId as number);
    expect(queue.finished).toBe(true);
  });

  it('gives it to the same worker again when there is no other', () => {
    const queue = queueOf('a');
    queue.take('w1', true, any);
    jest.advanceTimersByTime(VISIBILITY_MS);
    expect(queue.take('w1', true, any)?.invoiceId).toBe('a');
    queue.stop();
  });

  it('delivers a failed message again after a while, and later each time', () => {
    const queue = queueOf('a');
    const waits = [100, 200, 400].map((longestMs) => {
      queue.retryLater(queue.take('w1', false, any)?.deliveryId as number);
      expect(queue.take('w1', false, any)).toBeNull();
      jest.advanceTimersByTime(longestMs / 2 - 1);
      const tooEarly = queue.take('w1', false, any);
      jest.advanceTimersByTime(longestMs / 2 + 1);
      return tooEarly;
    });
    expect(waits).toEqual([null, null, null]);
    expect(queue.take('w1', false, any)?.invoiceId).toBe('a');
    queue.stop();
  });

  it('delivers what a dead worker had at once, before all others', () => {
    const queue = queueOf('a', 'b');
    queue.workerDied(queue.take('w1', false, any)?.deliveryId as number);
    expect(queue.take('w2', false, any)?.invoiceId).toBe('a');
    queue.stop();
  });

  it('does not deliver again what is done, whoever did it', () => {
    const queue = queueOf('a');
    const late = queue.take('w1', false, any);
    jest.advanceTimersByTime(VISIBILITY_MS);
    queue.done(late?.deliveryId as number);
    expect(queue.take('w2', false, any)).toBeNull();
    expect(queue.finished).toBe(true);
  });

  it('passes over what does not suit at the moment', () => {
    const queue = queueOf('a', 'b');
    expect(queue.take('w1', false, (id) => id === 'b')?.invoiceId).toBe('b');
    queue.stop();
  });
});
