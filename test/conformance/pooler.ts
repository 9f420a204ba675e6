import { once } from 'node:events';
import { connect, createServer } from 'node:net';

import { freePort } from '../servers/free-port.js';

export interface Pooler {
  readonly port: number;
  stop(): Promise<void>;
}

/**
 * As a client sees PgBouncer in front of PostgreSQL: the process number that it is told is the pooler's invention, because
 * none of the server's sessions is its own. (A quiet PgBouncer also serves one client from one session, as this does.)
 */
export async function startPooler(serverPort: number): Promise<Pooler> {
  const pooler = createServer((client) => {
    const session = connect(serverPort, '127.0.0.1');
    let told = false;
    session.on('data', (answer) => {
      const keyData = told ? -1 : answer.indexOf(BACKEND_KEY_DATA);
      told ||= keyData >= 0;
      if (keyData >= 0) answer.writeInt32BE(INVENTED, keyData + BACKEND_KEY_DATA.length);
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

/** Type and length of the message; the process number and the secret follow. */
const BACKEND_KEY_DATA = Buffer.from([0x4b, 0, 0, 0, 12]);
const INVENTED = 123_456_789;
