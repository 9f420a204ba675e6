/**
 * Resolves as soon as `decided` is content with what has been answered; else when everybody has answered, or when the time is
 * over. Answers that come later are dropped.
 */
export function poll<A>(
  asked: readonly Promise<A>[],
  decided: (answers: readonly A[]) => boolean,
  patienceMs?: number,
): Promise<readonly A[]> {
  const answers: A[] = [];
  return new Promise((resolve) => {
    const timer = patienceMs === undefined ? undefined : setTimeout(() => end(), patienceMs);
    const end = (): void => {
      clearTimeout(timer);
      resolve([...answers]);
    };
    if (asked.length === 0) end();
    for (const each of asked) {
      void each.then((answer) => {
        answers.push(answer);
        if (answers.length === asked.length || decided(answers)) end();
      });
    }
  });
}

/** More than half of an odd number of servers: two majorities share at least one. */
export function majorityOf(servers: number): number {
  return (servers + 1) / 2;
}
