import { NoAnswer } from './wait.js';

/**
 * For stores whose driver can be told to stop: ends all that `work` has sent and not heard of when its time is over.
 *
 * @throws {NoAnswer} its time is over
 */
export async function withDeadline<T>(
  timeoutMs: number,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), timeoutMs);
  try {
    return await work(deadline.signal);
  } catch (error) {
    throw deadline.signal.aborted ? new NoAnswer(timeoutMs) : error;
  } finally {
    clearTimeout(timer);
  }
}
