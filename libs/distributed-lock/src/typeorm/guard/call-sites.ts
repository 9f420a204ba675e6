import type { Attempt } from './refusals.js';

/** Far more places than an application writes from; beyond it, nothing new is reported. */
const MOST_SITES = 1_000;
const DEEPEST_STACK = 60;

/** Reports unguarded writes once for each place in the code, so that a roll-out shows what is left to do. */
export class CallSites {
  readonly #seen = new Set<string>();

  warnOnce({ entity, path }: Attempt): void {
    const site = callerOf();
    const seen = `${entity.name} ${path} ${site}`;
    if (this.#seen.has(seen) || this.#seen.size >= MOST_SITES) return;
    this.#seen.add(seen);
    process.emitWarning(
      `A write to ${entity.name} by ${path} carried no fencing token and was let pass (${site}). ` +
        `Put it under @Locked('${entity.template.text}') before unfencedWrites becomes 'refuse'.`,
      { type: 'UnfencedWrite', code: 'UNFENCED_WRITE' },
    );
  }
}

/** The nearest line of code that belongs neither to TypeORM nor to this package, as stack traces show it. */
function callerOf(): string {
  // eslint-disable-next-line @typescript-eslint/unbound-method -- put back as it was found, never called
  const { stackTraceLimit, prepareStackTrace } = Error;
  Error.stackTraceLimit = DEEPEST_STACK;
  const { stack: shown = '' } = new Error();
  // The files as they were loaded: source maps may show those of libraries under other names.
  Error.prepareStackTrace = (_error, frames) => frames.map((frame) => frame.getFileName() ?? '');
  const files = new Error().stack as unknown as readonly string[];
  Object.assign(Error, { stackTraceLimit, prepareStackTrace });
  const own = folderOf(files[0] ?? '');
  const nearest = files.findIndex(
    (file) => !/[\\/]node_modules[\\/]|^node:|^$/.test(file) && folderOf(file) !== own,
  );
  const frame = shown.split('\n').slice(1)[nearest];
  return frame?.trim().replace(/^at (?:async )?/, '') ?? 'unknown caller';
}

function folderOf(file: string): string {
  return file.replace(/[^\\/]*$/, '');
}
