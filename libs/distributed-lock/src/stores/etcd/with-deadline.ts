import { NoAnswer } from '../../core/index.js';

/** Ends all commands of `work` when its time is over. */
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
