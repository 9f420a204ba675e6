import { adviceFor, locate, type ServerKind } from './binaries.mjs';

/**
 * `describe` for tests that start servers of these kinds. Where the machine lacks one, the tests are reported as skipped
 * under the sentence that says what to install; with `REQUIRE_SERVERS=1` they fail with it instead.
 */
export function describeWithServers(kinds: readonly ServerKind[], title: string, body: () => void): void {
  const missing = kinds.filter((kind) => locate(kind) === null);
  if (missing.length === 0) return describe(title, body);
  const reason = missing.map(adviceFor).join('; ');
  if (process.env['REQUIRE_SERVERS'] !== '1') return describeSkipped(`${title} [skipped: ${reason}]`, body);
  describe(title, () => {
    it('has the servers that it needs', () => {
      throw new Error(`REQUIRE_SERVERS=1, but ${reason}.`);
    });
  });
}

/** The one place that may switch tests off. */
const describeSkipped = describe['skip'];
