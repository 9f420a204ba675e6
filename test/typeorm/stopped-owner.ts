import { writePaths } from './write-paths.js';

/** The ways to write that a token lets pass; path `i` writes rows of invoice `i`. */
export const guardedPaths = writePaths.filter(({ is }) => is === 'guarded');

export function keyOf(index: number): string {
  return `invoice:${index}`;
}
