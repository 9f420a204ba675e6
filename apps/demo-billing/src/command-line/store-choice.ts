import { InputError } from './input-error.js';
import {
  readServerList,
  type Login,
  type ServerAddress,
  type ServerList,
  type ServerListForm,
} from './server-list.js';

/**
 * Where locks and invoices are kept. `embedded` is SQLite in a temporary folder that goes with the run; stores that keep no
 * invoices have these embedded beside them.
 */
export type StoreChoice =
  | { readonly kind: 'embedded' }
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'redis'; readonly place: RedisPlace }
  | { readonly kind: 'redlock'; readonly urls: readonly string[] }
  /** `sessionLocks`: with the locks that the server has for sessions, advisory locks and GET_LOCK. */
  | { readonly kind: 'postgres' | 'mysql'; readonly url: string; readonly sessionLocks: boolean }
  | { readonly kind: 'etcd' | 'zookeeper'; readonly hosts: readonly string[]; readonly login?: Login }
  | { readonly kind: 'consul'; readonly url: string; readonly token?: string };

/** One server, the master that sentinels know by a name, or a cluster. */
export type RedisPlace =
  | { readonly url: string }
  | { readonly sentinels: readonly ServerAddress[]; readonly name: string; readonly access: RedisAccess }
  | { readonly cluster: readonly ServerAddress[]; readonly access: RedisAccess };

/** To the servers of Redis, where no URL says it. */
export type RedisAccess = Partial<Login> & { readonly tls?: object };

/** How each store is written. */
const EXAMPLES = {
  sqlite: 'sqlite:PATH',
  redis: 'redis://host:port[/db]',
  'redis+sentinel': 'redis+sentinel://host:port,host:port,host:port/NAME',
  'redis+cluster': 'redis+cluster:redis://host:port,redis://host:port',
  redlock: 'redlock:redis://a:port,redis://b:port,redis://c:port',
  postgres: 'postgres://user@host:port/database',
  'postgres+advisory': 'postgres+advisory://user@host:port/database',
  mysql: 'mysql://user:password@host:port/database',
  'mysql+getlock': 'mysql+getlock://user:password@host:port/database',
  etcd: 'etcd:http://host:port,http://host:port',
  zookeeper: 'zookeeper:host:port,host:port',
  consul: 'consul:http://host:port',
} as const;

type Scheme = keyof typeof EXAMPLES;

/** One for each, for the help. */
export const STORE_EXAMPLES: readonly string[] = Object.values(EXAMPLES);

/** Other names for the same. */
const ALIASES: Readonly<Record<string, Scheme>> = {
  rediss: 'redis',
  postgresql: 'postgres',
  mariadb: 'mysql',
  'mariadb+getlock': 'mysql+getlock',
};

/** @throws {InputError} the scheme is unknown or something is missing behind it */
export function parseStoreChoice(text: string): StoreChoice {
  const written = /^([a-z+]+):/i.exec(text)?.[1]?.toLowerCase() ?? '';
  const scheme = ALIASES[written] ?? (Object.keys(EXAMPLES) as Scheme[]).find((each) => each === written);
  const behind = text.slice(written.length + 1);
  switch (scheme) {
    case 'sqlite':
      return { kind: scheme, file: sqliteFile(behind) };
    case 'redis':
      return { kind: 'redis', place: { url: redisUrl(text, text, scheme) } };
    case 'redis+sentinel':
      return { kind: 'redis', place: sentinels(text, behind) };
    case 'redis+cluster':
      return { kind: 'redis', place: cluster(text, behind) };
    case 'redlock':
      return { kind: scheme, urls: behind.split(',').map((url) => redisUrl(url, text, scheme)) };
    case 'postgres':
    case 'postgres+advisory':
      return { kind: 'postgres', ...database(text, behind, scheme) };
    case 'mysql':
    case 'mysql+getlock':
      return { kind: 'mysql', ...database(text, behind, scheme) };
    case 'etcd':
      return {
        kind: scheme,
        ...hosts(servers(text, behind, scheme, { schemes: ['http', 'https'], port: 2379 })),
      };
    case 'zookeeper':
      return {
        kind: scheme,
        ...hosts(servers(text, behind, scheme, { schemes: ['zookeeper'], port: 2181 })),
      };
    case 'consul':
      return { kind: scheme, ...agent(text, behind) };
    case undefined:
      throw refused(text, `is not a store; write ${STORE_EXAMPLES.join(', ')}`);
  }
}

/** For messages: connection strings carry passwords. Rather too much is hidden than too little. */
export function withoutPassword(text: string): string {
  return text
    .replace(/^([a-z+]*:(?:[a-z]+:)?(?:\/\/)?[^:@/]*):.*@/is, '$1:***@')
    .replace(/([?&]\w*(?:password|secret|token)\w*=)[^&\s]*/gi, '$1***');
}

function refused(text: string, why: string): InputError {
  return new InputError(`--store "${withoutPassword(text)}" ${why}`);
}

function sqliteFile(behind: string): string {
  const file = behind.replace(/^\/\/(?=.)/, '');
  if (file === '') throw new InputError('--store "sqlite:" names no file; write sqlite:PATH');
  if (file.includes(':memory:')) {
    throw new InputError(
      '--store "sqlite::memory:" cannot be shared by several worker processes; write sqlite:PATH',
    );
  }
  return file;
}

function redisUrl(url: string, text: string, scheme: Scheme): string {
  const parsed = serverUrl(url, text, scheme);
  if (!/^rediss?:$/.test(parsed.protocol)) throw refused(text, `names no Redis; write ${EXAMPLES[scheme]}`);
  if (/^\/?\d*$/.test(parsed.pathname)) return parsed.href;
  throw refused(text, 'names no database: the database of a Redis server is a number');
}

function serverUrl(url: string, text: string, scheme: Scheme): URL {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed?.host) return parsed;
  throw refused(text, `names no server; write ${EXAMPLES[scheme]}`);
}

function servers(text: string, behind: string, scheme: Scheme, form: ServerListForm): ServerList {
  const list = readServerList(behind.replace(/^\/\//, ''), form);
  if (list) return list;
  throw refused(text, `names no servers that can be read; write ${EXAMPLES[scheme]}`);
}

function database(text: string, behind: string, scheme: Scheme) {
  const [driver = '', locks] = scheme.split('+');
  const { href } = serverUrl(`${driver}:${behind}`, text, scheme);
  return { url: href, sessionLocks: locks !== undefined };
}

function sentinels(text: string, behind: string): RedisPlace {
  const [, list = '', name = ''] = /^(?:\/\/)?([^/]*)\/?(.*)$/.exec(behind) ?? [];
  const { addresses, login } = servers(text, list, 'redis+sentinel', { schemes: ['redis'], port: 26379 });
  if (/^[\w.-]+$/.test(name)) return { sentinels: addresses, name, access: { ...login } };
  throw refused(text, `does not say what the sentinels call the master; write ${EXAMPLES['redis+sentinel']}`);
}

function cluster(text: string, behind: string): RedisPlace {
  const form: ServerListForm = { schemes: ['redis', 'rediss'], port: 6379 };
  const { addresses, urls, login } = servers(text, behind, 'redis+cluster', form);
  const tls = urls.some((url) => url.startsWith('rediss:')) ? { tls: {} } : {};
  return { cluster: addresses, access: { ...login, ...tls } };
}

/** One agent finds all servers. Its password is a token of the ACL system. */
function agent(text: string, behind: string) {
  const { urls, login } = servers(text, behind, 'consul', { schemes: ['http', 'https'], port: 8500 });
  const [url = '', ...others] = urls;
  if (others.length > 0) throw refused(text, `names several agents; write ${EXAMPLES.consul}`);
  return { url, ...(login && { token: login.password }) };
}

function hosts({ urls, login }: ServerList) {
  return { hosts: urls.map((url) => url.replace('zookeeper://', '')), ...(login && { login }) };
}
