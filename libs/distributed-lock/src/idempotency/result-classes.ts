/** How instances of one class are kept and made again. */
export interface ResultClass<T = unknown> {
  readonly type: abstract new (...args: never[]) => T;
  /** What to keep of an instance; its own enumerable properties unless given. May hold all that a result may hold. */
  readonly store?: (instance: T) => unknown;
  /** Makes an instance of what was kept; without it, the properties are put on the bare prototype. */
  readonly revive?: (stored: never) => T;
}

/** By the names that the records keep: renaming a class changes nothing, renaming an entry does. */
export type ResultClasses = Readonly<Record<string, ResultClass>>;
