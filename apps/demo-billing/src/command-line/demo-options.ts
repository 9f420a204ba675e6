import { randomInt } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { parseArgs, type ParseArgsConfig } from 'node:util';

import { FAULT_CHOICES, type FaultChoice } from '../faults/fault-plan.js';
import { InputError } from './input-error.js';
import { parseStoreChoice, STORE_EXAMPLES, type StoreChoice } from './store-choice.js';

export interface DemoOptions {
  /** The file of invoices to settle. */
  readonly input: string;
  readonly workers: number;
  readonly store: StoreChoice;
  readonly faults: FaultChoice;
  /** Decides which invoice is struck by which fault: the same seed strikes the same ones. */
  readonly seed: number;
  /** Runs the same work with a bare TTL lock, to show what goes wrong. */
  readonly unsafe: boolean;
  /** Ends standard output with the account as one line of JSON. */
  readonly json: boolean;
  /** Serves payments over HTTP from this port on, instead of settling the file; null settles it. */
  readonly servePort: number | null;
}

const ACCEPTED = {
  input: { type: 'string' },
  workers: { type: 'string' },
  store: { type: 'string' },
  faults: { type: 'string' },
  seed: { type: 'string' },
  unsafe: { type: 'boolean' },
  json: { type: 'boolean' },
  serve: { type: 'boolean' },
  port: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const satisfies ParseArgsConfig['options'];

const MOST_WORKERS = 32;
const DEFAULT_PORT = '3000';
/** There is one more replica behind it. */
const HIGHEST_PORT = 65_534;
const LARGEST_NEW_SEED = 1_000_000;
/** Seen from the compiled file and from the source alike. */
const SAMPLE_FILE = new URL('../../../../apps/demo-billing/data/invoices.csv', import.meta.url);

export const HELP = `Settles a file of invoices with several worker processes, while workers are paused and killed.

  npm run demo -- [options]

  --input FILE     CSV with id, tenant, customer, amount, currency, due_date (default: a sample of 240 invoices)
  --workers N      worker processes, 1 to ${MOST_WORKERS} (default: 4)
  --store URL      where locks, records and invoices are kept (default: SQLite in a temporary folder). One of
${STORE_EXAMPLES.map((example) => `                     ${example}`).join('\n')}
                   A database keeps all three; the others keep locks, Redis records as well, beside invoices in SQLite.
                   On PostgreSQL and MySQL or MariaDB a run makes a schema (database) of its own, and drops it;
                   …+advisory and …+getlock take the locks of sessions there. The tables of SQLite, in PATH, PATH-locks
                   and PATH-records, stay for you to look at. Redis forgets records within a day. Where a store keeps
                   no short leases, as Consul (10 s) and ZooKeeper (4 s), pauses are longer, and so is the run.
  --faults WHAT    ${FAULT_CHOICES.join(', ')} (default: all)
  --seed N         repeats the faults of an earlier run (default: a new one, which is printed)
  --unsafe         the same work under a bare TTL lock: shows the double charges
  --json           ends standard output with the account as one line of JSON
  --serve          takes payments over HTTP instead, POST /invoices/:id/pay, and prints lines to try. With --input,
                   --store and --unsafe
  --port N         where --serve listens; its second replica is at the next port (default: ${DEFAULT_PORT}; 0: any free ones)
  --help           this text

Exit code: 0 when every invoice was charged exactly once and to the last cent, 1 when not, 2 when the options or the
file cannot be used.
`;

/** @throws {InputError} an option is unknown or its value makes no sense */
export function readOptions(args: readonly string[]): DemoOptions | 'help' {
  const given = parse(args);
  if (given.help) return 'help';
  refuseWhatDoesNotApply(given);
  return {
    input: given.input ?? fileURLToPath(SAMPLE_FILE),
    workers: wholeNumber('workers', given.workers ?? '4', { from: 1, to: MOST_WORKERS }),
    store: given.store === undefined ? { kind: 'embedded' } : parseStoreChoice(given.store),
    faults: faultChoice(given.faults ?? 'all'),
    seed:
      given.seed === undefined
        ? randomInt(LARGEST_NEW_SEED)
        : wholeNumber('seed', given.seed, { from: 0, to: Number.MAX_SAFE_INTEGER }),
    unsafe: given.unsafe ?? false,
    json: given.json ?? false,
    servePort: given.serve
      ? wholeNumber('port', given.port ?? DEFAULT_PORT, { from: 0, to: HIGHEST_PORT })
      : null,
  };
}

function refuseWhatDoesNotApply(given: ReturnType<typeof parse>): void {
  const meaningless = given.serve ? (['workers', 'faults', 'seed', 'json'] as const) : (['port'] as const);
  const name = meaningless.find((each) => given[each] !== undefined);
  if (name) throw new InputError(`--${name} means nothing ${given.serve ? 'with' : 'without'} --serve`);
}

function parse(args: readonly string[]) {
  try {
    const joined = joinNegativeValues(args);
    return parseArgs({ args: joined, options: ACCEPTED, strict: true, allowPositionals: false }).values;
  } catch (error) {
    const [firstSentence] = (error as Error).message.split(/\.\s|\n/);
    throw new InputError(`${String(firstSentence).replace(/\.$/, '')}; --help lists the options`);
  }
}

/** `--seed -1` is a seed that cannot be used, and not the option `-1` behind an ambiguous one. */
function joinNegativeValues(args: readonly string[]): string[] {
  return args.reduce<string[]>((joined, arg) => {
    const option = joined.at(-1);
    const isValue = /^-\d/.test(arg) && option !== undefined && /^--\w+$/.test(option);
    return isValue ? [...joined.slice(0, -1), `${option}=${arg}`] : [...joined, arg];
  }, []);
}

function wholeNumber(name: string, text: string, { from, to }: { from: number; to: number }): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN;
  if (value >= from && value <= to) return value;
  throw new InputError(`--${name} "${text}" is not a whole number from ${from} to ${to}`);
}

function faultChoice(text: string): FaultChoice {
  const choice = FAULT_CHOICES.find((each) => each === text);
  if (choice) return choice;
  throw new InputError(`--faults "${text}" is unknown; write one of ${FAULT_CHOICES.join(', ')}`);
}
