import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../architecture/repository-files.js';

/** What the README leaves out, because every Nest application has it. */
const LEFT_OUT = `
  import { Injectable, Module } from '@nestjs/common';
  import { InjectRepository, TypeOrmModule } from '@nestjs/typeorm';
  import { DistributedLockModule, Locked, LockContext } from 'nestjs-distributed-lock';
  import { redisStore } from 'nestjs-distributed-lock/redis';
  import { DistributedLockTypeOrmModule, FencedBy, LockTokenColumn } from 'nestjs-distributed-lock/typeorm';
  import { Column, Entity, PrimaryColumn, Repository } from 'typeorm';

  declare class PayoutGateway {
    send(payout: { invoiceId: string; amount: number; fencingToken: number }): Promise<void>;
  }
`;

/** Shows that types are there and checked: with nothing to expect, this line is itself an error. */
const CONTROL = `
  // @ts-expect-error a duration is a number of milliseconds
  Locked('invoice:<id>', { ttlMs: '15s' });
`;

/** The TypeScript of the README as one module. The last block comes first: it has the entity that the others use. */
export function readmeModule(): string {
  const readme = readFileSync(join(REPOSITORY, 'README.md'), 'utf8');
  const blocks = [...readme.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code);
  return [LEFT_OUT, ...blocks.reverse(), CONTROL].join('\n');
}
