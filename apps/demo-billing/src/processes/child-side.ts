/** Where {@link startChild} puts what the child is to know. Not in the arguments: every user of the machine can read those. */
export const SETTINGS_VARIABLE = 'DEMO_BILLING_SETTINGS';

/** For an error that nobody handled: sysexits.h calls it "internal software error". */
const EXIT_UNHANDLED = 70;

/** What the parent wants this process to know. */
export function ownSettings<Settings>(): Settings {
  const text = process.env[SETTINGS_VARIABLE];
  if (text === undefined) throw new Error('This program is started by the demo; run npm run demo.');
  return JSON.parse(text) as Settings;
}

/** Resolves once the message has left this process: what is done afterwards, the parent expects. */
export function tellParent(message: object): Promise<void> {
  return new Promise((resolve, reject) => {
    if (!process.send) return reject(new Error('There is no parent to tell.'));
    process.send(message, undefined, {}, (error) => (error ? reject(error) : resolve()));
  });
}

/**
 * Makes this process live and die with its parent: Ctrl-C at the terminal is the parent's affair, and nothing goes on
 * without it. An error that nobody handled ends the process, after the parent was told.
 */
export function followParent(tellUnhandled: (error: unknown) => Promise<void>): void {
  process.on('SIGINT', () => undefined);
  process.on('disconnect', () => process.exit(0));
  const fail = (error: unknown): void => {
    void tellUnhandled(error).finally(() => process.exit(EXIT_UNHANDLED));
  };
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
}
