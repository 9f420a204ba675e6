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

/** The same plan for the same seed, invoices and choice. Small files meet as many faults as they have invoices. */
export function planFaults(seed: number, invoiceIds: readonly string[], choice: FaultChoice): FaultPlan {
  const order = shuffled(invoiceIds, seededRandom(seed));
  const draw = (count: number): string[] => order.splice(0, count);
  const pauses = choice === 'pause' || choice === 'all' ? draw(PAUSES) : [];
  const kills = choice === 'kill' || choice === 'all' ? draw(KILLS) : [];
  return {
    strikes: new Map([...strikesOf('pause', pauses), ...strikesOf('kill', kills)]),
    lostAnswers: new Set(choice === 'all' ? draw(LOST_ANSWERS) : []),
  };
}

function strikesOf(kind: Fault['kind'], invoiceIds: readonly string[]): [string, Fault][] {
  return invoiceIds.map((id, i) => [id, { kind, step: STEPS[i % STEPS.length] as Step }]);
}
