/** The user asked to end the run. */
export class RunInterrupted extends Error {
  override readonly name = 'RunInterrupted';
}
