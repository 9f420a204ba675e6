import type { Dialect } from '../sql/index.js';

export type Control = 'begin' | 'commit' | 'rollback' | null;

const LEADING = String.raw`^(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*`;
const BEGIN = new RegExp(`${LEADING}(?:begin|start\\s+transaction)\\b`, 'i');
const COMMIT = new RegExp(`${LEADING}(?:commit|end)\\b`, 'i');
const ROLLBACK = new RegExp(`${LEADING}(?:rollback|abort)\\b(?!\\s+(?:work\\s+|transaction\\s+)?to\\b)`, 'i');
const PREPARE = new RegExp(`${LEADING}prepare\\s+transaction\\b`, 'i');
/** Before these, MySQL and MariaDB commit what is open, without being asked. */
const COMMITS_BEFORE = new RegExp(
  `${LEADING}(?:(?:create|alter|drop)\\s+(?!(?:or\\s+replace\\s+)?temporary\\b|prepare\\b)|truncate\\b|rename\\b|(?:un)?lock\\s+tables?\\b|` +
    'grant\\b|revoke\\b|(?:analyze|check|optimize|repair)\\s+(?:\\w+\\s+)?table\\b|flush\\b|(?:un)?install\\b|' +
    'set\\s+(?:session\\s+|@@(?:session\\.)?)?autocommit\\b)',
  'i',
);

export function controlOf(sql: string): Control {
  if (COMMIT.test(sql)) return 'commit';
  if (BEGIN.test(sql)) return 'begin';
  return ROLLBACK.test(sql) ? 'rollback' : null;
}

/** Whether the transaction would be over after `sql`. */
export function endsTransaction(dialect: Dialect, sql: string): boolean {
  const control = controlOf(sql);
  if (control === 'commit' || control === 'rollback') return true;
  return dialect === 'mysql' ? control === 'begin' || COMMITS_BEFORE.test(sql) : PREPARE.test(sql);
}
