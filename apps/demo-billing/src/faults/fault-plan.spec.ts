import { planFaults, STEPS, type FaultPlan } from './fault-plan.js';

const ids = Array.from({ length: 240 }, (_, i) => `INV-${i}`);

function told(plan: FaultPlan): unknown {
  return [[...plan.strikes], [...plan.lostAnswers]];
}

describe('the fault plan', () => {
  it('is the same for the same seed, and another one for another seed', () => {
    expect(told(planFaults(7, ids, 'all'))).toEqual(told(planFaults(7, ids, 'all')));
    expect(told(planFaults(7, ids, 'all'))).not.toEqual(told(planFaults(8, ids, 'all')));
    expect(told(planFaults(2 ** 40, ids, 'all'))).not.toEqual(told(planFaults(0, ids, 'all')));
  });

  it('strikes every step with a pause and with a kill', () => {
    const strikes = [...planFaults(1, ids, 'all').strikes.values()];
    for (const kind of ['pause', 'kill']) {
      const struck = strikes.filter((fault) => fault.kind === kind).map(({ step }) => step);
      expect(new Set(struck)).toEqual(new Set(STEPS));
    }
  });

  it('gives each invoice one kind of trouble at the most', () => {
    const { strikes, lostAnswers } = planFaults(3, ids, 'all');
    const all = [...strikes.keys(), ...lostAnswers];
    expect(new Set(all).size).toBe(all.length);
  });

  it.each([
    ['none', { pause: 0, kill: 0, others: 0 }],
    ['pause', { pause: 10, kill: 0, others: 0 }],
    ['kill', { pause: 0, kill: 5, others: 0 }],
    ['all', { pause: 10, kill: 5, others: 6 }],
  ] as const)('with %s strikes as asked', (choice, expected) => {
    const { strikes, lostAnswers } = planFaults(5, ids, choice);
    const count = (kind: string): number => [...strikes.values()].filter((each) => each.kind === kind).length;
    const others = lostAnswers.size;
    expect({ pause: count('pause'), kill: count('kill'), others }).toEqual(expected);
  });

  it.each([
    [30, { strikes: 15, lostAnswers: 6 }],
    [6, { strikes: 3, lostAnswers: 2 }],
    [3, { strikes: 2, lostAnswers: 1 }],
    [1, { strikes: 1, lostAnswers: 0 }],
    [0, { strikes: 0, lostAnswers: 0 }],
  ])('gives each kind of trouble its share of %d invoices', (invoices, expected) => {
    const { strikes, lostAnswers } = planFaults(5, ids.slice(0, invoices), 'all');
    expect({ strikes: strikes.size, lostAnswers: lostAnswers.size }).toEqual(expected);
  });

  it('strikes every step in small files as well, with one seed or another', () => {
    for (const kind of ['pause', 'kill']) {
      const struck = Array.from({ length: 40 }, (_, seed) =>
        [...planFaults(seed, ids.slice(0, 3), 'all').strikes.values()].find((each) => each.kind === kind),
      );
      expect(new Set(struck.map((fault) => fault?.step))).toEqual(new Set(STEPS));
    }
  });
});
