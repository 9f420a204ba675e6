import { spawnSync } from 'node:child_process';

const COMMAND_LIMIT_MS = 300_000;

/**
 * What the program writes to its end.
 *
 * @param {string} program
 * @param {readonly string[]} args
 * @param {NodeJS.ProcessEnv} [environment]
 * @param {string} [cwd]
 */
export function run(program, args, environment = {}, cwd) {
  const env = { ...process.env, ...environment };
  const ended = spawnSync(program, args, { cwd, env, encoding: 'utf8', timeout: COMMAND_LIMIT_MS });
  if (ended.error) throw ended.error;
  if (ended.status === 0) return ended.stdout;
  throw new Error(`${program} ${args.join(' ')} ended with ${ended.status}:\n${ended.stderr.trim()}`);
}
