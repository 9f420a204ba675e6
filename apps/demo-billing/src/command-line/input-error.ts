/** What the user gave cannot be used. `message` is one line that says why; nothing was started, and the exit code is 2. */
export class InputError extends Error {
  override readonly name = 'InputError';
}
