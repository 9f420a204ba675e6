import { nextLeaseState, type LeaseEvent, type LeaseState } from './lease-state.js';

const at = (ms: number): { monotonicMs: number; wallMs: number } => ({
  monotonicMs: ms,
  wallMs: 1_000_000 + ms,
});

const STATES = {
  acquired: { kind: 'acquired', deadline: at(1_000) },
  renewing: { kind: 'renewing', deadline: at(1_000) },
  unanswered: { kind: 'uncertain', deadline: at(1_000), doubt: 'unanswered' },
  clocks: { kind: 'uncertain', deadline: at(1_000), doubt: 'clocks' },
  lost: { kind: 'lease-lost', reason: 'expired' },
  released: { kind: 'released' },
} as const satisfies Record<string, LeaseState>;

const EVENTS = {
  sent: { type: 'renewal-sent', deadline: at(1_500) },
  sentShorter: { type: 'renewal-sent', deadline: at(800) },
  renewed: { type: 'renewed', deadline: at(2_000) },
  renewedShorter: { type: 'renewed', deadline: at(900) },
  unanswered: { type: 'renewal-unanswered' },
  clocks: { type: 'clocks-disagree' },
  lost: { type: 'lost', reason: 'taken-over' },
  release: { type: 'release-started' },
} as const satisfies Record<string, LeaseEvent>;

const SHORTER = at(800);
const AFRESH: LeaseState = { kind: 'acquired', deadline: at(2_000) };
const AFRESH_SHORTER: LeaseState = { kind: 'acquired', deadline: at(900) };
const TAKEN_OVER: LeaseState = { kind: 'lease-lost', reason: 'taken-over' };
const { renewing, unanswered, clocks, lost, released } = STATES;

/** Every state, every event. */
const TABLE: Record<keyof typeof STATES, Record<keyof typeof EVENTS, LeaseState>> = {
  acquired: {
    sent: renewing,
    sentShorter: { ...renewing, deadline: SHORTER },
    renewed: AFRESH,
    renewedShorter: AFRESH_SHORTER,
    unanswered,
    clocks,
    lost: TAKEN_OVER,
    release: released,
  },
  renewing: {
    sent: renewing,
    sentShorter: { ...renewing, deadline: SHORTER },
    renewed: AFRESH,
    renewedShorter: AFRESH_SHORTER,
    unanswered,
    clocks,
    lost: TAKEN_OVER,
    release: released,
  },
  unanswered: {
    sent: unanswered,
    sentShorter: { ...unanswered, deadline: SHORTER },
    renewed: AFRESH,
    renewedShorter: AFRESH_SHORTER,
    unanswered,
    clocks,
    lost: TAKEN_OVER,
    release: released,
  },
  clocks: {
    sent: clocks,
    sentShorter: { ...clocks, deadline: SHORTER },
    renewed: AFRESH,
    renewedShorter: AFRESH_SHORTER,
    unanswered: clocks, // the stricter doubt stays until the store has confirmed the lease
    clocks,
    lost: TAKEN_OVER,
    release: released,
  },
  lost: {
    sent: lost,
    sentShorter: lost,
    renewed: lost,
    renewedShorter: lost,
    unanswered: lost,
    clocks: lost,
    lost,
    release: lost,
  },
  released: {
    sent: released,
    sentShorter: released,
    renewed: released,
    renewedShorter: released,
    unanswered: released,
    clocks: released,
    lost: released,
    release: released,
  },
};

const ROWS = Object.entries(TABLE).flatMap(([from, row]) =>
  Object.entries(row).map(([event, to]) => ({ from, event, to })),
) as { from: keyof typeof STATES; event: keyof typeof EVENTS; to: LeaseState }[];

describe('the life of a lease', () => {
  it.each(ROWS)('goes on from $from at $event to $to.kind', ({ from, event, to }) => {
    expect(nextLeaseState(STATES[from], EVENTS[event])).toEqual(to);
  });

  it.each(ROWS.filter(({ from, to }) => STATES[from] === to))(
    'hands back the very same state where $event changes nothing in $from',
    ({ from, event }) => {
      expect(nextLeaseState(STATES[from], EVENTS[event])).toBe(STATES[from]);
    },
  );
});
