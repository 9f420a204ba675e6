import type { Busy, Grant, RenewalAnswer } from './lock-store.js';

/**
 * Answers of a store, believed only where they are exact: a driver that says `'0'`, `0n`, `null` or a Buffer must not be
 * taken for a yes. What cannot be understood at all is thrown, and counts as no answer.
 */

export function acquireAnswer(answer: Grant | Busy): Grant | Busy {
  const said = answer as Partial<Grant & { retryAfterMs: unknown }> | null | undefined;
  switch (said?.kind as string | undefined) {
    case 'granted':
      if (Number.isSafeInteger(said?.token)) return answer;
      throw new TypeError('The store granted the lock with a token that is no safe integer.');
    case 'busy':
      return { kind: 'busy', retryAfterMs: durationOrNull(said?.retryAfterMs) };
    default:
      throw new TypeError('The store answered the acquire with neither "granted" nor "busy".');
  }
}

export function renewalAnswers(answers: readonly RenewalAnswer[], asked: number): readonly RenewalAnswer[] {
  if (!Array.isArray(answers) || answers.length !== asked) {
    throw new TypeError(`The store did not answer each of ${asked} renewals.`);
  }
  return answers.map((answer) => (answer === 'renewed' ? 'renewed' : 'lost'));
}

function durationOrNull(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 ? value : null;
}
