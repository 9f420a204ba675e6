import { RunJournal } from './run-journal.js';

describe('the journal of a run', () => {
  it('counts an invoice as taken over when a second worker got its lock before it was settled', () => {
    const journal = new RunJournal();
    journal.acquired('a', 'w1', 1);
    journal.acquired('a', 'w2', 2);
    journal.settled('a', 2);
    expect(journal.takeOvers).toBe(1);
  });

  it('does not count a message that came twice, in whatever order the workers are heard', () => {
    const journal = new RunJournal();
    journal.acquired('a', 'w2', 2);
    journal.acquired('a', 'w1', 1);
    journal.settled('a', 1);
    journal.settled('a', 2);
    expect(journal.takeOvers).toBe(0);
  });

  it('does not count a worker that tries again', () => {
    const journal = new RunJournal();
    journal.acquired('a', 'w1', 1);
    journal.acquired('a', 'w1', 2);
    journal.settled('a', 2);
    expect(journal.takeOvers).toBe(0);
  });

  it('counts a take-over under a lock that let the former owner finish as well', () => {
    const journal = new RunJournal();
    journal.acquired('a', 'w1', 1);
    journal.acquired('a', 'w2', 2);
    journal.settled('a', 2);
    journal.settled('a', 1);
    expect(journal.takeOvers).toBe(1);
    expect(journal.settledInvoices).toBe(1);
  });

  it('does not take a worker that was only told for the one that has settled the invoice', () => {
    const journal = new RunJournal();
    journal.acquired('a', 'w1', 1);
    journal.acquired('a', 'w2', 2);
    journal.settled('a', null);
    expect([journal.takeOvers, journal.settledInvoices]).toEqual([1, 1]);
    journal.settled('a', 2);
    expect([journal.takeOvers, journal.settledInvoices]).toEqual([1, 1]);
  });

  it('counts each further attempt once, also when it was claimed twice before it could begin', () => {
    const journal = new RunJournal();
    for (const attempt of [1, 2, 2, 3]) journal.attempted('a', attempt);
    journal.attempted('b', 2);
    expect(journal.furtherAttempts).toBe(3);
  });

  it('counts refusals by who refused', () => {
    const journal = new RunJournal();
    journal.refused('lease-check');
    journal.refused('lease-check');
    journal.refused('database-guard');
    expect(journal.refusals('lease-check')).toBe(2);
    expect(journal.refusals('database-guard')).toBe(1);
    expect(journal.refusals('gateway-token')).toBe(0);
  });
});
