import { writeSync } from 'node:fs';

/** @typedef {import('@jest/reporters').AggregatedResult} AggregatedResult */

const REASON = /\[skipped: (.+)\]$/;

/** Ends the run with one line that a person or a script can read, after the reasons of what was skipped. */
export default class SummaryReporter {
  /**
   * @param {unknown} _contexts
   * @param {AggregatedResult} results
   */
  onRunComplete(_contexts, results) {
    const reasons = skipsByReason(results).map(([reason, count]) => `Skipped ${count}: ${reason}\n`);
    // A suite that could not even be loaded has no tests to count, and must not pass for none failed.
    const failed = results.numFailedTests + results.numRuntimeErrorTestSuites;
    const skipped = results.numPendingTests + results.numTodoTests;
    const verdict = `${results.numPassedTests} passed, ${failed} failed, ${skipped} skipped\n`;
    // At the exit, because Jest's own summary comes after its reporters.
    process.once('exit', () => writeSync(process.stdout.fd, `${reasons.join('')}${verdict}`));
  }
}

/** @param {AggregatedResult} results */
function skipsByReason(results) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const test of results.testResults.flatMap((file) => file.testResults)) {
    const reason = test.ancestorTitles
      .map((title) => REASON.exec(title)?.[1])
      .find((found) => found !== undefined);
    if (test.status === 'pending' && reason) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  return [...counts];
}
