import { readFileSync } from 'node:fs';
import type { Identity } from './private-server.js';

/** Servers that refuse to run as root run as `name`, or as nobody where there is no such user; undefined: as ourselves. */
export function unprivileged(name: string): Identity | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const users = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'));
  const user = users.find(([known]) => known === name) ?? users.find(([known]) => known === 'nobody');
  if (!user) throw new Error(`This server does not run as root, and there is no user ${name} or nobody.`);
  return { uid: Number(user[2]), gid: Number(user[3]) };
}
