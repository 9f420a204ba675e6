import { Socket } from 'node:net';

import { BARE, CONNECT_TIMEOUT_MS, mortal, type OptionsOf, QUERY_TIMEOUT_MS } from './own-options.js';

type PostgresOptions = OptionsOf<'postgres'>;

export function ownPostgres(options: PostgresOptions, poolSize: number): PostgresOptions {
  const { replication, url, host, port, username, password, database, ssl, applicationName, ...rest } =
    options;
  const direct = { url, host, port, username, password, database, ssl, applicationName };
  const primary = replication ? { ...replication.master } : direct;
  const extra = (options.extra ?? {}) as PoolExtra;
  return {
    ...withoutSideEffects(rest),
    ...primary,
    ...BARE,
    poolSize,
    extra: { ...extra, ...poolLimits(options, extra, poolSize) },
    // A broken idle connection is replaced at its next use: nothing to report and nobody to tell.
    poolErrorHandler: () => undefined,
  };
}

/** What would change the application's process or schema again: time zone, type parsers, extensions, notices. */
function withoutSideEffects(options: Partial<PostgresOptions>): { readonly type: 'postgres' } {
  const { useUTC, parseInt8, extensions, logNotifications, ...rest } = options;
  void [useUTC, parseInt8, extensions, logNotifications];
  return { ...rest, type: 'postgres', installExtensions: false } as { type: 'postgres' };
}

interface PoolExtra {
  readonly query_timeout?: number;
  readonly connectionTimeoutMillis?: number;
  readonly stream?: Socket | (() => Socket);
}

function poolLimits(options: PostgresOptions, extra: PoolExtra, poolSize: number): object {
  const connectTimeoutMs = extra.connectionTimeoutMillis || options.connectTimeoutMS || CONNECT_TIMEOUT_MS;
  return {
    max: poolSize,
    min: 0,
    keepAlive: true,
    connectionTimeoutMillis: Math.min(connectTimeoutMs, CONNECT_TIMEOUT_MS),
    query_timeout: Math.min(extra.query_timeout || QUERY_TIMEOUT_MS, QUERY_TIMEOUT_MS),
    stream: mortalSocket(extra.stream),
  };
}

function mortalSocket(stream: PoolExtra['stream']): PoolExtra['stream'] {
  if (stream && typeof stream !== 'function') return stream;
  return () => mortal(stream ? stream() : new Socket());
}
