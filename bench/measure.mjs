// Rates are measured side by side in one process and told as ratios: absolute figures depend on the machine of the day.

/** Keeps `inFlight` calls of `once` going for `forMs`; calls per second. */
async function rateOf(once, forMs, inFlight) {
  const startedAtMs = performance.now();
  const endsAtMs = startedAtMs + forMs;
  let calls = 0;
  const keepCalling = async () => {
    for (; performance.now() < endsAtMs; calls += 1) await once();
  };
  await Promise.all(Array.from({ length: inFlight }, keepCalling));
  return (calls * 1_000) / (performance.now() - startedAtMs);
}

/** The median rate of each contender over interleaved rounds, so that a slow moment hits all of them alike. */
export async function compare(contenders, { rounds = 10, roundMs = 300, inFlight = 1 } = {}) {
  const rates = new Map(Object.keys(contenders).map((name) => [name, []]));
  for (const once of Object.values(contenders)) await rateOf(once, roundMs, inFlight); // warm-up
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, once] of Object.entries(contenders)) {
      rates.get(name).push(await rateOf(once, roundMs, inFlight));
    }
  }
  return Object.fromEntries([...rates].map(([name, list]) => [name, median(list)]));
}

export function median(list) {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

export function report(title, rates, floor) {
  console.log(`\n${title}`);
  for (const [name, rate] of Object.entries(rates)) {
    const ratio = (rate / rates[floor]).toFixed(2);
    console.log(
      `${name.padEnd(44)}${Math.round(rate).toLocaleString('en').padStart(12)}/s   ${ratio} × ${floor}`,
    );
  }
}
