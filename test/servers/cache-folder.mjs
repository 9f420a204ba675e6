import { lstatSync, mkdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

const REPOSITORY = dirname(dirname(import.meta.dirname));

/**
 * The folder that fetched servers are kept in, created when missing. In the repository, unless the server, which must not
 * run as root, could not get there.
 *
 * @returns {string}
 */
export function cacheFolder() {
  const chosen = process.env['SERVERS_CACHE'];
  if (chosen) return privateFolder(chosen);
  const inRepository = join(REPOSITORY, '.cache', 'servers');
  if (process.getuid?.() !== 0 || openToAll(REPOSITORY)) return privateFolder(inRepository);
  return privateFolder('/var/tmp/nestjs-distributed-lock-servers');
}

/**
 * Programs are run from here, so nobody else may be able to put one in.
 *
 * @param {string} folder
 */
function privateFolder(folder) {
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  const found = lstatSync(folder);
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
    throw new Error(`${folder} must be a folder that only its owner, you, can write to.`);
  }
  return folder;
}

/**
 * @param {string} folder
 * @returns {boolean} whether every user can reach what is in it
 */
function openToAll(folder) {
  const reachable = (statSync(folder).mode & 0o001) !== 0;
  return reachable && (folder === dirname(folder) || openToAll(dirname(folder)));
}
