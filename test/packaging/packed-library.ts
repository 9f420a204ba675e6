import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const REPOSITORY = dirname(dirname(import.meta.dirname));
const LIBRARY = 'libs/distributed-lock';
const NAME = 'nestjs-distributed-lock';

/** The library as its users get it: built, packed and unpacked, beside the dependencies of this repository. */
export interface PackedLibrary {
  /** The package's folder in a copy of the workspace, after the build. */
  readonly source: string;
  /** Paths in the tarball. */
  readonly files: readonly string[];
  /** A project that has the library installed, and everything of ours except the packages named in `without`. */
  project(without?: readonly string[]): Project;
  remove(): void;
}

export interface Project {
  readonly folder: string;
  /** Runs `code` as an ES module of this project. */
  run(code: string): { readonly status: number | null; readonly output: string };
  /** What the compiler says to TypeScript in this project, whose package.json has this `type`; empty when nothing. */
  compile(code: string, type: 'module' | 'commonjs'): string;
}

/** Builds and packs a copy, so that whoever uses the repository's own dist meanwhile is not disturbed. */
export function packLibrary(): PackedLibrary {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'lock-pack-')));
  const source = copyWorkspace(root);
  const [packed] = JSON.parse(npm(['pack', '--json', '--pack-destination', root], source)) as [Packed];
  const unpacked = join(root, 'unpacked');
  mkdirSync(unpacked);
  run('tar', ['-xf', join(root, packed.filename), '-C', unpacked], root);
  return {
    source,
    files: packed.files.map((file) => file.path),
    project: (without = []) =>
      createProject(join(unpacked, 'package'), mkdtempSync(join(root, 'project-')), without),
    remove: () => rmSync(root, { recursive: true, force: true }),
  };
}

interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

function copyWorkspace(root: string): string {
  const source = join(root, 'workspace', LIBRARY);
  cpSync(join(REPOSITORY, LIBRARY), source, {
    recursive: true,
    filter: (path) => !/\/(dist|node_modules)$/.test(path),
  });
  for (const file of ['tsconfig.json', 'package.json']) {
    cpSync(join(REPOSITORY, file), join(root, 'workspace', file));
  }
  symlinkSync(join(REPOSITORY, 'node_modules'), join(root, 'workspace', 'node_modules'));
  return source;
}

function createProject(library: string, folder: string, without: readonly string[]): Project {
  const modules = join(folder, 'node_modules');
  cpSync(library, join(modules, NAME), { recursive: true });
  for (const name of installedPackages()) if (name !== NAME && !without.includes(name)) link(modules, name);
  return {
    folder,
    run: (code) => runModule(folder, code),
    compile: (code, type) => compileModule(folder, code, type),
  };
}

function installedPackages(): string[] {
  const modules = join(REPOSITORY, 'node_modules');
  return readdirSync(modules)
    .filter((name) => !name.startsWith('.'))
    .flatMap((name) => (name.startsWith('@') ? scoped(modules, name) : [name]));
}

const scoped = (modules: string, scope: string): string[] =>
  readdirSync(join(modules, scope)).map((name) => `${scope}/${name}`);

function link(modules: string, name: string): void {
  mkdirSync(dirname(join(modules, name)), { recursive: true });
  symlinkSync(join(REPOSITORY, 'node_modules', name), join(modules, name));
}

function runModule(folder: string, code: string): { status: number | null; output: string } {
  const file = join(folder, 'main.mjs');
  writeFileSync(file, code);
  const ended = spawnSync(process.execPath, [file], { cwd: folder, encoding: 'utf8' });
  return { status: ended.status, output: ended.stdout + ended.stderr };
}

/** Strict, but for fields without initialisers, which entities have. */
const COMPILER_OPTIONS = {
  noEmit: true,
  strict: true,
  strictPropertyInitialization: false,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
  module: 'nodenext',
  target: 'es2022',
  types: ['node'],
  skipLibCheck: true, // takes longer than all the rest
};

function compileModule(folder: string, code: string, type: string): string {
  const settings = { compilerOptions: COMPILER_OPTIONS, files: ['main.ts'] };
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ type }));
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(settings));
  writeFileSync(join(folder, 'main.ts'), code);
  const compiler = join(REPOSITORY, 'node_modules/typescript/bin/tsc');
  return spawnSync(process.execPath, [compiler], { cwd: folder, encoding: 'utf8' }).stdout;
}

function npm(args: readonly string[], cwd: string): string {
  const script = process.env['npm_execpath'];
  return script?.endsWith('.js') ? run(process.execPath, [script, ...args], cwd) : run('npm', args, cwd);
}

function run(program: string, args: readonly string[], cwd: string): string {
  const ended = spawnSync(program, args, { cwd, encoding: 'utf8' });
  if (ended.error) throw ended.error;
  if (ended.status === 0) return ended.stdout;
  throw new Error(
    `${program} ${args.join(' ')} ended with ${String(ended.status)}:\n${ended.stdout}${ended.stderr}`,
  );
}
