/** Where a server listens. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

export interface Login {
  readonly username: string;
  readonly password: string;
}

/** Several servers of one store. */
export interface ServerList {
  readonly addresses: readonly ServerAddress[];
  /** The same as URLs, without a login. */
  readonly urls: readonly string[];
  /** The first one that is written before an address. */
  readonly login?: Login;
}

export interface ServerListForm {
  /** How the URL of a server may begin; where nothing is written, the first one is meant. */
  readonly schemes: readonly [string, ...string[]];
  readonly port: number;
}

/** @returns null when it is not `host[:port],host[:port]`, or a URL for each of them */
export function readServerList(text: string, form: ServerListForm): ServerList | null {
  const servers = text.split(',').map((each) => readServer(each.trim(), form));
  if (!servers.every((server) => server !== null)) return null;
  const known = servers.find(({ login }) => login.username + login.password !== '');
  return {
    addresses: servers.map(({ host, port }) => ({ host: host.replace(/[[\]]/g, ''), port })),
    urls: servers.map(({ scheme, host, port }) => `${scheme}://${host}:${port}`),
    ...(known && { login: known.login }),
  };
}

function readServer(text: string, { schemes, port }: ServerListForm) {
  const [, scheme = schemes[0], rest = ''] = /^(?:([a-z]+):\/\/)?(.*)$/i.exec(text) ?? [];
  const generic = `server://${rest}`; // a scheme without a port of its own: the written one is kept
  if (!schemes.includes(scheme) || !URL.canParse(generic)) return null;
  const url = new URL(generic);
  if (url.host === '' || !/^\/?$/.test(url.pathname + url.search + url.hash)) return null;
  const login = { username: decoded(url.username), password: decoded(url.password) };
  return { scheme, host: url.hostname, port: Number(url.port || port), login };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a password may hold a bare "%"
  }
}
