import { once } from 'node:events';
import { connect, createServer } from 'node:net';

import { freePort } from '../servers/free-port.js';

export interface Pooler {
  readonly port: number;
  stop(): Promise<void>;
}

/**
 * As a client sees a pooler in front of a server: the number of its process or thread that it is told is the pooler's invention,
 * because none of the server's sessions is its own. (A quiet PgBouncer also serves one client from one session, as this does.)
 */
export async function startPooler(serverPort: number, numberIn: NumberIn): Promise<Pooler> {
  const pooler = createServer((client) => {
    const session = connect(serverPort, '127.0.0.1');
    let told = false;
    session.on('data', (answer) => {
      const place = told ? undefined : numberIn(answer);
      told ||= place !== undefined;
      if (place !== undefined) answer.writeInt32BE(INVENTED, place);
      client.write(answer);
    });
    client.pipe(session);
    client.on('close', () => session.destroy()).on('error', () => undefined);
    session.on('close', () => client.destroy()).on('error', () => undefined);
  });
  const port = await freePort();
  pooler.listen(port, '127.0.0.1');
  await once(pooler, 'listening');
  return { port, stop: () => new Promise((resolve) => pooler.close(() => resolve())) };
}

/** Where an answer of the server says the number of its process; undefined when it does not. */
type NumberIn = (answer: Buffer) => number | undefined;

/** BackendKeyData: a type and a length, then the process number and a secret. */
export function processNumberOfPostgres(answer: Buffer): number | undefined {
  const begin = answer.indexOf(BACKEND_KEY_DATA);
  return begin < 0 ? undefined : begin + BACKEND_KEY_DATA.length;
}

/** The greeting: a header of four bytes, the protocol, the version with a zero at its end, then the thread. */
export function threadNumberOfMysql(answer: Buffer): number | undefined {
  return answer.indexOf(0, GREETING_HEADER) + 1;
}

const BACKEND_KEY_DATA = Buffer.from([0x4b, 0, 0, 0, 12]);
const GREETING_HEADER = 5;
const INVENTED = 123_456_789;
