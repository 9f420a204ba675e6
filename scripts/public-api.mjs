// node scripts/public-api.mjs [--write]: compares the public names of each entry point with docs/public-api.txt, or writes it.
// A name in there is a promise to users; a change of the file is a decision, not a side effect.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import ts from 'typescript';

const REPOSITORY = dirname(import.meta.dirname);
const LIBRARY = join(REPOSITORY, 'libs/distributed-lock');
export const PUBLIC_API = join(REPOSITORY, 'docs/public-api.txt');

/** @returns {string} one paragraph per entry point, one line per name: types, then values */
export function publicApi() {
  const config = ts.getParsedCommandLineOfConfigFile(join(LIBRARY, 'tsconfig.lib.json'), {}, onDisk());
  if (!config) throw new Error('tsconfig.lib.json cannot be read.');
  const program = ts.createProgram(config.fileNames, config.options);
  return entryPoints()
    .map(([name, file]) => `${name}\n${namesOf(program, file)}`)
    .join('\n');
}

const onDisk = () => ({
  ...ts.sys,
  /** @param {ts.Diagnostic} diagnostic @returns {never} */
  onUnRecoverableConfigFileDiagnostic: (diagnostic) => {
    throw new Error(ts.flattenDiagnosticMessageText(diagnostic.messageText, '\n'));
  },
});

/** @returns {[name: string, file: string][]} what the export map names, with the source that it is compiled from */
function entryPoints() {
  const manifest =
    /** @type {{ name: string, exports: Record<string, { import?: { default: string } }> }} */ (
      JSON.parse(readFileSync(join(LIBRARY, 'package.json'), 'utf8'))
    );
  return Object.entries(manifest.exports).flatMap(([subpath, { import: target }]) => {
    if (!target) return [];
    const source = target.default.replace('./dist/esm/', 'src/').replace(/\.js$/, '.ts');
    return [[manifest.name + subpath.slice(1), join(LIBRARY, source)]];
  });
}

/**
 * @param {ts.Program} program
 * @param {string} file
 */
function namesOf(program, file) {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (!module) throw new Error(`${file} exports nothing.`);
  const names = checker
    .getExportsOfModule(module)
    .map((symbol) => `  ${kindOf(checker, symbol)} ${symbol.name}\n`);
  return names.sort().join('');
}

/**
 * @param {ts.TypeChecker} checker
 * @param {ts.Symbol} symbol
 */
function kindOf(checker, symbol) {
  const meant = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  return meant.flags & ts.SymbolFlags.Value && !isTypeOnly(symbol) ? 'value' : 'type';
}

/** @param {ts.Symbol} symbol */
const isTypeOnly = (symbol) =>
  (symbol.declarations ?? []).some((declaration) => ts.isTypeOnlyImportOrExportDeclaration(declaration));

if (process.argv[1] === import.meta.filename) {
  const names = publicApi();
  if (process.argv.includes('--write')) writeFileSync(PUBLIC_API, names);
  else if (names !== readFileSync(PUBLIC_API, 'utf8')) {
    console.error('The public names have changed. If that is meant: node scripts/public-api.mjs --write');
    process.exitCode = 1;
  }
}
