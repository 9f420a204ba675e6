import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';

import { freePort } from './free-port.js';
import { startServer, type Place, type TestServer } from './private-server.js';

/** Short ticks make for short sessions: half a second at least; and any number of connections from this machine. */
const SETTINGS = [
  'tickTime=250',
  'maxSessionTimeout=120000',
  'maxClientCnxns=0',
  'initLimit=40',
  'syncLimit=8',
  'admin.enableServer=false',
  'forceSync=no',
  '4lw.commands.whitelist=srvr',
];

/** A ZooKeeper server of your own; `stop()` it when done. */
export async function startZooKeeper(): Promise<TestServer> {
  const [server] = await startZooKeeperEnsemble(1);
  return server as TestServer;
}

/** Members of one ensemble, each with its own folder and ports. */
export async function startZooKeeperEnsemble(size: number): Promise<TestServer[]> {
  const members: string[] = [];
  for (let id = 1; size > 1 && id <= size; id += 1) {
    members.push(`server.${id}=127.0.0.1:${await freePort()}:${await freePort()}`);
  }
  const starting = Array.from({ length: size }, (_, i) => startMember(i + 1, members));
  const started = await Promise.allSettled(starting);
  const failed = started.find((each) => each.status === 'rejected');
  if (!failed) return Promise.all(starting);
  for (const each of started) if (each.status === 'fulfilled') await each.value.stop();
  throw failed.reason;
}

function startMember(id: number, members: readonly string[]): Promise<TestServer> {
  return startServer({
    kind: 'zookeeper',
    url: (host, port) => `zookeeper://${host}:${port}`,
    command: (place) => ({ program: 'java', args: [...javaArguments(place), configure(place, id, members)] }),
    ask: isServing,
  });
}

function javaArguments({ binaries }: Place): string[] {
  const small = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'];
  const log = '-Dorg.slf4j.simpleLogger.defaultLogLevel=error';
  const classes = (binaries.jars ?? []).join(':');
  return [...small, log, '-cp', classes, 'org.apache.zookeeper.server.quorum.QuorumPeerMain'];
}

function configure({ folder, port }: Place, id: number, members: readonly string[]): string {
  const data = join(folder, 'data');
  mkdirSync(data, { recursive: true });
  writeFileSync(join(data, 'myid'), String(id));
  const file = join(folder, 'zoo.cfg');
  const own = [`dataDir=${data}`, `clientPort=${port}`, 'clientPortAddress=127.0.0.1'];
  writeFileSync(file, [...SETTINGS, ...own, ...members, ''].join('\n'));
  return file;
}

/** A member that has no leader refuses to answer. */
async function isServing(host: string, port: number): Promise<void> {
  if (/^Mode: /m.test(await zookeeperWord(host, port, 'srvr'))) return;
  throw new Error('it does not serve yet');
}

/** What a server says to one of its four-letter words. */
export async function zookeeperWord(host: string, port: number, word: string): Promise<string> {
  const socket = connect(port, host);
  let said = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (said += chunk));
  try {
    socket.write(word);
    await once(socket, 'end', { signal: AbortSignal.timeout(1_000) });
    return said;
  } finally {
    socket.destroy();
  }
}
