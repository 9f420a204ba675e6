import { LockConfigInvalidError } from '../../core/index.js';
import type { IdempotentCall } from '../../idempotency/index.js';
import type { HttpRequest } from './http-exchange.js';
import type { AppIdempotency } from './idempotency-of-app.js';
import type { IdempotentSite } from './idempotent-site.js';

/**
 * Whoever may see the answer. `request` is given where the key is the client's own, since then two clients may choose the
 * same one.
 *
 * @throws {LockConfigInvalidError} somebody sent the request, and nothing says who
 */
export function callerOf(
  site: IdempotentSite,
  app: AppIdempotency,
  request: HttpRequest | undefined,
  args: readonly unknown[],
): Pick<IdempotentCall, 'caller' | 'scope'> {
  const { scope } = site.options;
  if (scope === 'global') return { scope };
  if (scope) return { caller: named(site, scope(...((request ? [request] : args) as never[]))) };
  if (!request) return {};
  if (app.caller) return { caller: named(site, app.caller(request as never)) };
  const caller = userOf(request);
  if (caller === undefined && looksAuthenticated(request)) throw nobody(site);
  return { caller };
}

/** As passport and most guards leave it. */
function userOf({ user }: HttpRequest): string | undefined {
  if (typeof user !== 'object' || user === null) return undefined;
  const { id, sub } = user as { readonly id?: unknown; readonly sub?: unknown };
  return nameFrom(id ?? sub);
}

function looksAuthenticated({ user, headers = {} }: HttpRequest): boolean {
  return user !== undefined || headers['authorization'] !== undefined || headers['cookie'] !== undefined;
}

function named(site: IdempotentSite, caller: unknown): string {
  const name = nameFrom(caller);
  if (name === undefined) throw nobody(site);
  return name;
}

/** Nothing that two callers could have in common, such as '' and NaN. */
function nameFrom(value: unknown): string | undefined {
  if (typeof value === 'string' && value !== '') return value;
  return Number.isFinite(value) ? String(value) : undefined;
}

function nobody({ label }: IdempotentSite): LockConfigInvalidError {
  return new LockConfigInvalidError(
    `${label} was called by somebody, and nothing says who: one caller could be given the answer of another. It did not run; ` +
      `write ${SCOPE_ADVICE}`,
  );
}

export const SCOPE_ADVICE =
  "@Idempotent({ scope: (request: Request) => request.user.id }), or forRoot({ idempotency: { caller } }), or scope: 'global' " +
  'if everybody may see every answer.';
