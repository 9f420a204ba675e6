import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

export const REPOSITORY = dirname(dirname(import.meta.dirname));

/** One file, by its path from the top of the repository. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
  /** The text without comments, whose examples may show what the code must not do. */
  readonly code: string;
}

/** What ships: the library's and the apps' TypeScript, without specs. */
export function shippedSources(): SourceFile[] {
  return ['libs', 'apps']
    .flatMap((group) =>
      readdirSync(join(REPOSITORY, group)).map((name) => join(REPOSITORY, group, name, 'src')),
    )
    .flatMap((folder) => filesBelow(folder))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
    .map((file) => read(file));
}

/** The files below a folder of the repository, by their paths from its top. */
export function pathsBelow(folder: string): string[] {
  const top = join(REPOSITORY, folder);
  return filesBelow(top)
    .map((file) => relative(REPOSITORY, file))
    .filter((path) => !path.split('/').some((name) => NOT_OURS.has(name)));
}

const NOT_OURS = new Set(['node_modules', 'dist', 'coverage', '.git', '.cache']);

/** The names of all folders of ours. */
export function folderNames(folder = REPOSITORY): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !NOT_OURS.has(entry.name))
    .flatMap(({ name }) => [name, ...folderNames(join(folder, name))]);
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

function read(file: string): SourceFile {
  const text = readFileSync(file, 'utf8');
  return { path: relative(REPOSITORY, file), text, code: text.replace(/\/\*[^]*?\*\/|^\s*\/\/.*$/gm, '') };
}
