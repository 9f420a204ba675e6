/** One acquisition that was told of: when it was asked for and answered, by any one clock. */
export interface Acquired {
  readonly askedAt: number;
  readonly toldAt: number;
  readonly token: number;
}

/** Tokens that two owners share, and tokens that are not above those of everybody who was told before they asked. */
export function faultsOf(history: readonly Acquired[]): string[] {
  return history.flatMap((one, i) =>
    history.slice(i + 1).flatMap((other) => {
      const [first, second] = one.toldAt < other.askedAt ? [one, other] : [other, one];
      if (one.token === other.token) return [`duplicate ${one.token}`];
      return first.toldAt < second.askedAt && first.token > second.token
        ? [`regression ${first.token} ${second.token}`]
        : [];
    }),
  );
}
