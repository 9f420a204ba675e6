/** A moment that one part of a test waits for and another one brings about, where a pause would only hope for it. */
interface Promised {
  readonly kept: Promise<void>;
  keep(): void;
}

export function promised(): Promised {
  let keep: () => void = () => undefined;
  const kept = new Promise<void>((resolve) => (keep = resolve));
  return { kept, keep };
}
