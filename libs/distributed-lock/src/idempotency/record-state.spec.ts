import { ABSENT, nextRecordState, sameRequest, type RecordState, type RecordStep } from './record-state.js';

const result = { outcome: 'value', codec: 'c', body: '1' } as const;
const other = { outcome: 'value', codec: 'c', body: '2' } as const;
const known = { ownerId: 'me', fence: 1_000, attempt: 2, takenOver: false, fingerprint: '1:a' };

const states = {
  absent: ABSENT,
  'absent after 2 failures': { kind: 'absent', attempts: 2, fence: 1_000 },
  running: { ...known, kind: 'running' },
  lapsed: { ...known, kind: 'lapsed' },
  'lapsed, given up': { ...known, kind: 'lapsed', ownerId: null },
  done: { ...known, kind: 'done', result },
  abandoned: { ...known, kind: 'abandoned', ownerId: null },
} as const satisfies Record<string, RecordState>;

const claim = {
  type: 'claim',
  ownerId: 'new',
  clockFence: 5_000,
  fingerprint: '1:a',
  takeOver: true,
  maxAttempts: 5,
} as const;
const steps = {
  claim,
  'claim by its owner': { ...claim, ownerId: 'me' },
  'claim with another fingerprint': { ...claim, fingerprint: '1:b' },
  'claim without take-over': { ...claim, takeOver: false },
  'claim after too many attempts': { ...claim, maxAttempts: 2 },
  'lease ended': { type: 'lease-ended' },
  expired: { type: 'expired' },
  forget: { type: 'forget' },
  resolve: { type: 'resolve', result: other },
  'renew by its owner': { type: 'renew', ownerId: 'me' },
  'renew by another': { type: 'renew', ownerId: 'new' },
  'complete by its owner': { type: 'complete', ownerId: 'me', result: other },
  'complete by another': { type: 'complete', ownerId: 'new', result: other },
  'free by its owner': { type: 'free', ownerId: 'me', countsAttempt: true },
  'free by its owner, not counted': { type: 'free', ownerId: 'me', countsAttempt: false },
  'free by another': { type: 'free', ownerId: 'new', countsAttempt: true },
  'give up by its owner': { type: 'lapse', ownerId: 'me', countsAttempt: true },
  'give up by its owner, not counted': { type: 'lapse', ownerId: 'me', countsAttempt: false },
  'give up by another': { type: 'lapse', ownerId: 'new', countsAttempt: true },
  'abandon by its owner': { type: 'abandon', ownerId: 'me' },
  'abandon by another': { type: 'abandon', ownerId: 'new' },
} as const satisfies Record<string, RecordStep>;

const begun = { kind: 'running', ownerId: 'new', fingerprint: '1:a', takenOver: false };
const takenOver: RecordState = { ...begun, kind: 'running', fence: 5_000, attempt: 3, takenOver: true };
const { running, lapsed, abandoned } = states;
const doneBy = (ownerId: string | null): RecordState => ({ ...known, kind: 'done', ownerId, result: other });
const freed: RecordState = { kind: 'absent', attempts: 2, fence: 1_000 };
const uncounted: RecordState = { kind: 'absent', attempts: 1, fence: 1_000 };
const firstOf = (fingerprint: string): object => ({ ...begun, fingerprint, fence: 5_000, attempt: 1 });
const thirdOf = (fingerprint: string): object => ({ ...begun, fingerprint, fence: 5_000, attempt: 3 });

/** What each step makes of each state. What is not named here is refused: the state stays as it is. */
const TABLE: Record<keyof typeof states, Partial<Record<keyof typeof steps, object>>> = {
  absent: {
    claim: firstOf('1:a'),
    'claim by its owner': { ...firstOf('1:a'), ownerId: 'me' },
    'claim with another fingerprint': firstOf('1:b'),
    'claim without take-over': firstOf('1:a'),
    'claim after too many attempts': firstOf('1:a'),
  },
  'absent after 2 failures': {
    claim: thirdOf('1:a'),
    'claim by its owner': { ...thirdOf('1:a'), ownerId: 'me' },
    'claim with another fingerprint': thirdOf('1:b'),
    'claim without take-over': thirdOf('1:a'),
    'claim after too many attempts': thirdOf('1:a'),
    expired: ABSENT,
    forget: ABSENT,
  },
  running: {
    'claim by its owner': running,
    'lease ended': lapsed,
    expired: ABSENT,
    'renew by its owner': running,
    'complete by its owner': doneBy('me'),
    'free by its owner': freed,
    'free by its owner, not counted': uncounted,
    'give up by its owner': { ...lapsed, ownerId: null },
    'give up by its owner, not counted': { ...lapsed, ownerId: null, attempt: 1 },
    'abandon by its owner': abandoned,
  },
  lapsed: {
    claim: takenOver,
    'claim by its owner': running,
    'claim without take-over': abandoned,
    'claim after too many attempts': abandoned,
    expired: ABSENT,
    forget: ABSENT,
    resolve: doneBy(null),
    'renew by its owner': running,
    'complete by its owner': doneBy('me'),
    'free by its owner': freed,
    'free by its owner, not counted': uncounted,
    'give up by its owner': { ...lapsed, ownerId: null },
    'give up by its owner, not counted': { ...lapsed, ownerId: null, attempt: 1 },
    'abandon by its owner': abandoned,
  },
  'lapsed, given up': {
    claim: takenOver,
    'claim by its owner': { ...takenOver, ownerId: 'me' },
    'claim without take-over': abandoned,
    'claim after too many attempts': abandoned,
    expired: ABSENT,
    forget: ABSENT,
    resolve: doneBy(null),
  },
  done: { expired: ABSENT, forget: ABSENT },
  abandoned: { expired: ABSENT, forget: ABSENT, resolve: doneBy(null) },
};

describe('the life of a record', () => {
  const rows = Object.entries(states).flatMap(([from, state]) =>
    Object.entries(steps).map(([name, step]) => ({ from, state, name, step })),
  );

  it.each(rows)('$from, $name', ({ from, state, name, step }) => {
    const next = nextRecordState(state, step);
    const expected = TABLE[from as keyof typeof states][name as keyof typeof steps];
    if (!expected) expect(next).toBe(state);
    else expect(next).toEqual(expected);
  });

  it('never lets a fence fall, also when the clock was set back', () => {
    const next = nextRecordState(states.lapsed, { ...claim, clockFence: 3 });
    expect(next).toMatchObject({ kind: 'running', fence: 1_001 });
    const afterFailures = nextRecordState(states['absent after 2 failures'], { ...claim, clockFence: 3 });
    expect(afterFailures).toMatchObject({ kind: 'running', fence: 1_001 });
  });
});

describe('two fingerprints', () => {
  it.each([
    ['1:a', '1:a', true],
    ['1:a', '1:b', false],
    ['1:a', '2:b', true],
    ['', '1:a', true],
    ['1:a', '', true],
    ['', '', true],
  ])('%j and %j may be one request: %s', (one, two, same) => {
    expect(sameRequest(one, two)).toBe(same);
  });
});
