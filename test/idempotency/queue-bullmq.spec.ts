import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DelayedError, Queue, QueueEvents, Worker, type JobsOptions } from 'bullmq';
import { hasCode, IdempotencyService, isLockError } from 'nestjs-distributed-lock';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { ConsumerProcess } from './queue-consumer-child.js';
import {
  consume,
  consumerModule,
  Payouts,
  type ConsumerNews,
  type Payout,
  type PayoutJob,
} from './queue-consumer.js';

/** Enough for several times as long as a lease of somebody who is gone. */
const PATIENT: JobsOptions = { attempts: 1_000, backoff: { type: 'fixed', delay: 50 } };
const PATIENCE_MS = 60_000;
jest.setTimeout(300_000);

describeWithServers(['redis'], 'a consumer of BullMQ with @Idempotent', () => {
  let server: RedisServer;
  let app: INestApplicationContext;
  let payouts: Payouts;
  let queue: Queue<Payout>;
  let events: QueueEvents;
  let workers: Worker[] = [];
  let news: ConsumerNews[];
  let queues = 0;

  const connection = (): { url: string; maxRetriesPerRequest: null } => ({
    url: server.url,
    maxRetriesPerRequest: null,
  });

  beforeAll(async () => {
    server = await startRedis();
    app = await NestFactory.createApplicationContext(consumerModule(server.url), { logger: false });
    payouts = app.get(Payouts);
  });
  afterAll(async () => {
    await app.close();
    await server.stop();
  });

  beforeEach(async () => {
    news = [];
    payouts.tell = (one) => void news.push(one);
    payouts.gate = Promise.resolve();
    queue = new Queue(`payouts-${(queues += 1)}`, { connection: connection() });
    events = new QueueEvents(queue.name, { connection: connection() });
    await events.waitUntilReady();
  });
  afterEach(async () => {
    await Promise.all(workers.map((worker) => worker.close(true)));
    workers = [];
    await Promise.all([queue.close(), events.close()]);
  });

  type Processing = (job: PayoutJob, token: string) => Promise<object>;

  function work(processing: Processing = (job) => consume(payouts, job)): Worker {
    const worker = new Worker(queue.name, (job, token = '') => processing(job, token), {
      connection: connection(),
      concurrency: 4,
      lockDuration: 1_000,
      stalledInterval: 200,
      maxStalledCount: 10,
    });
    worker.on('error', () => undefined);
    workers.push(worker);
    return worker;
  }

  const add = (invoice: string, options: JobsOptions = {}, amount = 5, name = 'payout'): Promise<PayoutJob> =>
    queue.add(name, { invoice, amount }, options);
  const charges = (invoice: string): ConsumerNews[] =>
    news.filter((one) => one.type === 'charged' && one.invoice === invoice);
  const resultOf = (job: PayoutJob): Promise<unknown> => job.waitUntilFinished(events, PATIENCE_MS);
  const gateway = (): (() => void) => {
    let open!: () => void;
    payouts.gate = new Promise((resolve) => (open = resolve));
    return open;
  };

  async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
    const deadlineMs = performance.now() + PATIENCE_MS;
    while (!(await isSo())) {
      if (performance.now() > deadlineMs) throw new Error('it should have been so by now');
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** As the notes recommend: a job that is at work elsewhere comes back later, and uses up no attempt. */
  const putOff: Processing = async (job, token) => {
    try {
      return await consume(payouts, job);
    } catch (error) {
      if (!hasCode(error, 'IDEMPOTENCY_IN_PROGRESS', 'LOCK_TIMEOUT')) throw error;
      const { retryAfterMs } = error as { readonly retryAfterMs?: number | null };
      await job.moveToDelayed(Date.now() + Math.min(retryAfterMs ?? 100, 100), token);
      throw new DelayedError();
    }
  };

  it('charges once for a message that was put into the queue twice, and completes both jobs with one answer', async () => {
    work();
    const [first, second] = await Promise.all([add('1', PATIENT), add('1', PATIENT)]);
    const answers = await Promise.all([resultOf(first), resultOf(second)]);
    expect(answers[0]).toEqual({ invoice: '1', amount: 5, by: process.pid });
    expect(answers[1]).toEqual(answers[0]);
    expect(charges('1')).toHaveLength(1);
  });

  it('C059: fails and retries the second delivery while the first is at work, and never completes it as done', async () => {
    const open = gateway();
    work();
    const first = await add('2', PATIENT);
    await until(() => news.length === 1);
    const second = await add('2', PATIENT);
    await until(async () => ((await queue.getJob(second.id ?? ''))?.attemptsMade ?? 0) >= 3);
    const waiting = await queue.getJob(second.id ?? '');
    expect(waiting?.failedReason).toMatch(/"payout:2" is at work elsewhere/);
    expect(await waiting?.isCompleted()).toBe(false);
    expect(await queue.getCompletedCount()).toBe(0);
    open();
    expect(await resultOf(second)).toEqual(await resultOf(first));
    expect(charges('2')).toHaveLength(1);
  });

  it('puts it off without using up an attempt where the consumer moves it to the delayed jobs', async () => {
    const open = gateway();
    let refusals = 0;
    work((job, token) =>
      putOff(job, token).catch((error: unknown) => {
        refusals += error instanceof DelayedError ? 1 : 0;
        throw error;
      }),
    );
    const first = await add('3');
    await until(() => news.length === 1);
    const second = await add('3'); // one attempt
    await until(() => refusals >= 3);
    expect(await queue.getCompletedCount()).toBe(0);
    open();
    expect(await resultOf(second)).toEqual(await resultOf(first));
    expect(charges('3')).toHaveLength(1);
  });

  it('fails a known message with other data, and a job of which nobody said what counts', async () => {
    work();
    await resultOf(await add('4'));
    await expect(resultOf(await add('4', {}, 6))).rejects.toThrow(/used before with another request/);
    await expect(resultOf(await add('5', {}, 5, 'hasty'))).rejects.toThrow(
      /fingerprint: \(job\) => job\.data/,
    );
    expect(await queue.getFailedCount()).toBe(2);
    expect(charges('4')).toHaveLength(1);
    expect(news.filter(({ type }) => type === 'begun')).toHaveLength(1);
  });

  it('C088: runs a job that failed once more, as its second attempt', async () => {
    payouts.gate = Promise.reject(new Error('the gateway is away'));
    payouts.gate.catch(() => undefined);
    work();
    const job = await add('6', PATIENT);
    await until(() => news.length >= 2); // it goes on failing until somebody looks
    payouts.gate = Promise.resolve();
    await expect(resultOf(job)).resolves.toMatchObject({ invoice: '6' });
    const attempts = news.map((one) => (one.type === 'begun' ? one.attempt : 0)).filter(Boolean);
    expect(attempts).toEqual(attempts.map((_, i) => i + 1));
    expect(attempts.length).toBeGreaterThanOrEqual(3);
    expect(charges('6')).toHaveLength(1);
  });

  it('C011, C060: a worker that is stopped (SIGSTOP) until its job is given to another one charges nothing when it wakes up', async () => {
    const stopped = new ConsumerProcess(server.url, queue.name);
    try {
      await stopped.until('ready', 1);
      const job = await add('7', PATIENT);
      await stopped.until('begun', 1);
      stopped.pause();
      const codes: unknown[] = [];
      work((one) =>
        consume(payouts, one).catch((error: unknown) => {
          codes.push(isLockError(error) && error.code);
          throw error;
        }),
      );
      const answer = await resultOf(job);
      expect(answer).toEqual({ invoice: '7', amount: 5, by: process.pid });
      expect(codes.length).toBeGreaterThanOrEqual(1); // refused while the first one's record was alive
      expect(codes).toContain('IDEMPOTENCY_IN_PROGRESS');
      expect(codes.filter((code) => code !== 'IDEMPOTENCY_IN_PROGRESS' && code !== 'LOCK_TIMEOUT')).toEqual(
        [],
      );
      stopped.resume();
      await stopped.until('answered', 1); // with what its successor did
      expect(stopped.news).toContainEqual({ type: 'answered', invoice: '7', answer });
      expect(stopped.news.filter(({ type }) => type === 'charged')).toEqual([]);
      expect(charges('7')).toHaveLength(1);
      expect(await (await queue.getJob(job.id ?? ''))?.getState()).toBe('completed');
      expect((await queue.getJob(job.id ?? ''))?.returnvalue).toEqual(answer);
    } finally {
      await stopped.kill();
    }
  });

  it('C010, C026: after a worker was killed its job runs again, or waits for an operator where it must not be repeated', async () => {
    const killed = new ConsumerProcess(server.url, queue.name);
    await killed.until('ready', 1);
    const job = await add('8', PATIENT);
    const careful = await add('9', PATIENT, 5, 'careful');
    await killed.until('begun', 2);
    await killed.kill();
    const codes = new Map<string, unknown>();
    work((one) =>
      consume(payouts, one).catch(async (error: unknown) => {
        codes.set(one.data.invoice, isLockError(error) && error.code);
        if (hasCode(error, 'IDEMPOTENCY_OUTCOME_UNKNOWN')) one.discard();
        throw error;
      }),
    );
    await expect(resultOf(job)).resolves.toMatchObject({ invoice: '8', by: process.pid });
    expect(news).toContainEqual({ type: 'begun', invoice: '8', attempt: 2 });
    expect(charges('8')).toHaveLength(1);

    await expect(resultOf(careful)).rejects.toThrow(/an earlier attempt|An earlier attempt/);
    expect(codes.get('9')).toBe('IDEMPOTENCY_OUTCOME_UNKNOWN');
    expect(charges('9')).toEqual([]);
    expect(await app.get(IdempotencyService).forget('careful:9')).toBe('forgotten');
    await (await queue.getJob(careful.id ?? ''))?.retry();
    await until(() => charges('9').length === 1);
  });
});
