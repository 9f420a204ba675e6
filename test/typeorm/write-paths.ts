import { refusedPaths } from './write-paths-refused.js';
import { rowPaths } from './write-paths-rows.js';
import { statementPaths } from './write-paths-statements.js';
import type { WritePath } from './write-path.js';

export type { WritePath } from './write-path.js';

/** Every way in which TypeORM writes, and what becomes of it. docs/write-paths.md is made from this list. */
export const writePaths: readonly WritePath[] = [...rowPaths, ...statementPaths, ...refusedPaths];

/** What a write gets: it passes, or its error has this code. */
export type Answer = 'passes' | 'FENCED_OUT' | 'UNFENCED_WRITE' | typeof WHILE_NEVER_LOCKED;

export const WHILE_NEVER_LOCKED = 'passes while its key was never locked, then UNFENCED_WRITE';

export interface Answers {
  readonly withoutToken: Answer;
  readonly currentToken: Answer;
  readonly staleToken: Answer;
  readonly tokenOfAnotherKey: Answer;
}

export function answersOf({ is, inserts, otherKey = 'FENCED_OUT' }: WritePath): Answers {
  const refused = 'UNFENCED_WRITE';
  if (is === 'refused') {
    return { withoutToken: refused, currentToken: refused, staleToken: refused, tokenOfAnotherKey: refused };
  }
  return {
    withoutToken: inserts ? WHILE_NEVER_LOCKED : refused,
    currentToken: 'passes',
    staleToken: 'FENCED_OUT',
    tokenOfAnotherKey: otherKey,
  };
}
