import {
  labelledKey,
  LockConfigInvalidError,
  withHandedOver,
  type HandedOverToken,
} from '../../core/index.js';

/**
 * Runs `work`, whose guarded writes to rows of these keys carry these tokens, for a hold that somebody else has:
 * `withExpectedLockToken({ [InvoiceKey({ id })]: message.fencingToken }, () => …)`. It takes no lock and asks no store. A
 * write passes while the fence of its key has exactly this token: a newer owner refuses it, and a token that the fence
 * has never seen is refused as well (`@AcceptFencingToken` is what lets a service learn of new ones).
 *
 * `LockContext.token`, `tokenFor(key)` and `fencingHeaders()` give these tokens to calls further down; `lease()` and
 * `signal` do not know them, because nobody here can tell how long the hold lasts. What `work` leaves running shows them
 * no more once `work` has ended.
 *
 * @throws {FencedOutError} around it, another token is shown for one of the keys; `work` did not run. For a hold on the
 *   same key it is the write that is refused
 * @throws {LockConfigInvalidError | LockKeyInvalidError} a token is no safe integer from 0 on, a key is no key, or there
 *   is none; `work` did not run
 */
export async function withExpectedLockToken<T>(
  tokens: Readonly<Record<string, number>>,
  work: () => Promise<T> | T,
): Promise<T> {
  return withHandedOver(expectedTokens(tokens), work);
}

function expectedTokens(tokens: Readonly<Record<string, unknown>> | undefined): readonly HandedOverToken[] {
  const expected = Object.entries(tokens ?? {}).map(([key, token]) => expectedToken(key, token));
  if (expected.length > 0) return expected;
  throw new LockConfigInvalidError(
    "withExpectedLockToken() got no token, and the work did not run. Write { 'invoice:42': 41 }: each key with the token " +
      'that was handed over for it.',
  );
}

function expectedToken(text: string, token: unknown): HandedOverToken {
  const { key } = labelledKey(text);
  if (Number.isSafeInteger(token) && (token as number) >= 0) return { key, token: token as number };
  throw new LockConfigInvalidError(
    `The token expected for "${key}" is ${typeof token === 'string' ? `'${token}'` : String(token)}; pass the token of ` +
      'the hold, a safe integer. The work did not run.',
    { key },
  );
}
