import { seededRandom, shuffled } from './seeded-random.js';

export const FAULT_CHOICES = ['none', 'pause', 'kill', 'all'] as const;
export type FaultChoice = (typeof FAULT_CHOICES)[number];

/**
 * Where a fault can strike a worker that settles an invoice, in the order of the work. `before-charge`: the token has
 * been read and the call not been sent, so that only the gateway can stop a late one.
 */
export const STEPS = ['after-lock', 'after-read', 'before-charge', 'after-charge', 'after-save'] as const;
export type Step = (typeof STEPS)[number];

/** `pause`: stopped past the end of its lease, then woken. `kill`: ended on the spot. */
export interface Fault {
  readonly kind: 'pause' | 'kill';
  readonly step: Step;
}

/** Which invoice meets which trouble. At most one kind each, so that the account can be read. */
export interface FaultPlan {
  /** What happens to the worker that settles the invoice first. */
  readonly strikes: ReadonlyMap<string, Fault>;
  /** The gateway charges, and its first answer never arrives. */
  readonly lostAnswers: ReadonlySet<string>;
}

/** Every step is struck twice by a pause and once by a kill. */
const PAUSES = 2 * STEPS.length;
const KILLS = STEPS.length;
const LOST_ANSWERS = 6;
/** In small files every kind of trouble has its share, as many as there are of each among so many invoices. */
const FEWEST_FOR_ALL = 30;

/** The same plan for the same seed, invoices and choice. Files of less than 30 invoices meet fewer faults, one of each kind at least. */
export function planFaults(seed: number, invoiceIds: readonly string[], choice: FaultChoice): FaultPlan {
  const random = seededRandom(seed);
  const order = shuffled(invoiceIds, random);
  const share = Math.min(1, invoiceIds.length / FEWEST_FOR_ALL);
  const draw = (most: number): string[] => order.splice(0, Math.ceil(most * share));
  const pauses = choice === 'pause' || choice === 'all' ? draw(PAUSES) : [];
  const kills = choice === 'kill' || choice === 'all' ? draw(KILLS) : [];
  return {
    strikes: new Map([...strikesOf('pause', pauses, random), ...strikesOf('kill', kills, random)]),
    lostAnswers: new Set(choice === 'all' ? draw(LOST_ANSWERS) : []),
  };
}

/** One step after the other, from anywhere on: a few faults strike other steps with another seed. */
function strikesOf(
  kind: Fault['kind'],
  invoiceIds: readonly string[],
  random: () => number,
): [string, Fault][] {
  const first = Math.floor(random() * STEPS.length);
  return invoiceIds.map((id, i) => [id, { kind, step: STEPS[(first + i) % STEPS.length] as Step }]);
}
