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

  it('is content with a file that has fewer invoices than there are faults', () => {
    expect(planFaults(5, ['a', 'b', 'c'], 'all').strikes.size).toBe(3);
    expect(planFaults(5, [], 'all').strikes.size).toBe(0);
  });
});
