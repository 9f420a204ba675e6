import { InputError } from './input-error.js';

/**
 * Where locks and invoices are kept. `embedded` is SQLite in a temporary folder that goes with the run; `redis` and
 * `redlock` keep no invoices, which are embedded beside them.
 */
export type StoreChoice =
  | { readonly kind: 'embedded' }
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'redis'; readonly url: string }
  | { readonly kind: 'redlock'; readonly urls: readonly string[] }
  | { readonly kind: 'postgres'; readonly url: string }
  | { readonly kind: 'postgres+advisory'; readonly url: string };

const EXAMPLES =
  'sqlite:PATH, redis://host:port[/db], redlock:redis://a:port,redis://b:port,redis://c:port, ' +
  'postgres://user@host:port/database or postgres+advisory://user@host:port/database';

/** @throws {InputError} the scheme is unknown or something is missing behind it */
export function parseStoreChoice(text: string): StoreChoice {
  const scheme = /^([a-z+]+):/i.exec(text)?.[1]?.toLowerCase();
  switch (scheme) {
    case 'sqlite':
      return { kind: 'sqlite', file: sqliteFile(text) };
    case 'redis':
    case 'rediss':
      return { kind: 'redis', url: redisUrl(text) };
    case 'postgres':
    case 'postgresql':
      return { kind: 'postgres', url: serverUrl(text).href };
    case 'redlock':
      return { kind: 'redlock', urls: text.slice('redlock:'.length).split(',').map(redisUrl) };
    case 'postgres+advisory':
      return { kind: scheme, url: serverUrl(text.replace(/^[^:]+/, 'postgres')).href };
    default:
      throw new InputError(`--store "${withoutPassword(text)}" is not a store; write ${EXAMPLES}`);
  }
}

/** For messages: connection strings carry passwords. */
export function withoutPassword(text: string): string {
  return text.replace(/(:\/\/[^/@\s]*?):[^/\s]*@/, '$1:***@');
}

function sqliteFile(text: string): string {
  const file = text.slice('sqlite:'.length).replace(/^\/\/(?=.)/, '');
  if (file === '') throw new InputError('--store "sqlite:" names no file; write sqlite:PATH');
  if (file.includes(':memory:')) {
    throw new InputError(
      '--store "sqlite::memory:" cannot be shared by several worker processes; write sqlite:PATH',
    );
  }
  return file;
}

function redisUrl(text: string): string {
  const url = serverUrl(text);
  if (/^\/?\d*$/.test(url.pathname)) return url.href;
  throw new InputError(`--store "${withoutPassword(text)}": the database of a Redis server is a number`);
}

function serverUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.host) return url;
  throw new InputError(`--store "${withoutPassword(text)}" names no server; write ${EXAMPLES}`);
}
