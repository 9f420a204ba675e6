import 'reflect-metadata';

import { once } from 'node:events';

import { NestFactory } from '@nestjs/core';
import { Worker } from 'bullmq';

import { consume, consumerModule, Payouts, type ConsumerNews, type PayoutJob } from './queue-consumer.js';

/** Consumes a queue, and stops in the middle of each job until it is told to go on. */
const [url = '', queue = ''] = process.argv.slice(2);
const tell = (news: ConsumerNews): void => void process.send?.(news);

const app = await NestFactory.createApplicationContext(consumerModule(url), { logger: false });
const payouts = app.get(Payouts);
payouts.tell = tell;
payouts.gate = once(process, 'message').then(() => undefined);

const answering = async (job: PayoutJob): Promise<object> => {
  const answer = await consume(payouts, job);
  tell({ type: 'answered', invoice: job.data.invoice, answer });
  return answer;
};
const worker = new Worker(queue, answering, {
  connection: { url, maxRetriesPerRequest: null },
  concurrency: 4,
  lockDuration: 500,
  stalledInterval: 200,
  maxStalledCount: 10,
});
worker.on('error', () => undefined);
await worker.waitUntilReady();
tell({ type: 'ready' });
process.once('disconnect', () => process.exit(0));
