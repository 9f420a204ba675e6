// Ends a server and everything it started. Plain JavaScript, because the guard process runs it without a compiler.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const IS_LINUX = existsSync('/proc/self/stat');

/**
 * @param {number} pid
 * @param {NodeJS.Signals} name
 */
export function signal(pid, name) {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ESRCH') throw error;
  }
}

/**
 * The processes that `pid` started, which includes the backends of a PostgreSQL server: each of them leads its own process
 * group, so a signal to the server's group would miss them.
 *
 * @param {number} pid
 * @returns {number[]}
 */
export function descendants(pid) {
  const all = processes();
  /** @param {number} parent @returns {number[]} */
  const below = (parent) => {
    const children = all.filter((each) => each.parent === parent).map((each) => each.pid);
    return children.flatMap((child) => [child, ...below(child)]);
  };
  return below(pid);
}

/**
 * Whether any of `pids` still runs. A dead process that nobody has collected yet does not.
 *
 * @param {readonly number[]} pids
 */
export function anyRuns(pids) {
  const found = IS_LINUX ? pids.map((pid) => statOf(String(pid))) : processesByPs();
  return found.some((each) => each !== undefined && !each.dead && pids.includes(each.pid));
}

/**
 * SIGKILL for the whole tree, whether stopped or running.
 *
 * @param {number} pid
 * @returns {number[]} all that were told to end
 */
export function killTree(pid) {
  signal(pid, 'SIGSTOP'); // it must not start another child while we count them
  const tree = [...descendants(pid), pid];
  for (const each of tree) signal(each, 'SIGKILL');
  return tree;
}

/**
 * Removes a server's folder, and the System V memory that a killed PostgreSQL leaves behind.
 *
 * @param {string} folder
 */
export function removeServerFolder(folder) {
  const lockFile = join(folder, 'data', 'postmaster.pid');
  const memory = existsSync(lockFile)
    ? readFileSync(lockFile, 'utf8').split('\n')[6]?.trim().split(/\s+/)
    : [];
  if (memory?.[1]) spawnSync('ipcrm', ['-m', memory[1]], { stdio: 'ignore' });
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

/** @returns {{ pid: number, parent: number, dead: boolean }[]} */
function processes() {
  return IS_LINUX ? processesOfLinux() : processesByPs();
}

function processesOfLinux() {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const found = statOf(name);
      return found ? [found] : [];
    });
}

/** @param {string} pid */
function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, parent] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { pid: Number(pid), parent: Number(parent), dead: state === 'Z' || state === 'X' };
  } catch {
    return undefined; // it ended while we were reading the list
  }
}

function processesByPs() {
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid=,state='], { encoding: 'utf8' })
    .trim()
    .split('\n');
  return lines.map((line) => {
    const [pid, parent, state = ''] = line.trim().split(/\s+/);
    return { pid: Number(pid), parent: Number(parent), dead: state.startsWith('Z') };
  });
}
