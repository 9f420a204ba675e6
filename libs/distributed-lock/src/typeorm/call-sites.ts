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

/** The nearest line of code that belongs neither to TypeORM nor to this package. */
function callerOf(): string {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = DEEPEST_STACK;
  const { stack = '' } = new Error();
  Error.stackTraceLimit = limit;
  const frames = stack.split('\n').slice(1);
  const own = frames[0]?.replace(/^.*?\(?([^(]*)[\\/]call-sites\.[cm]?[jt]s.*$/, '$1') ?? '';
  const user = frames.find(
    (frame) => !/node_modules|node:|<anonymous>/.test(frame) && !(own !== '' && frame.includes(own)),
  );
  return user?.trim().replace(/^at (?:async )?/, '') ?? 'unknown caller';
}
