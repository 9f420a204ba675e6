import { LockConfigInvalidError, type LockService } from '../../core/index.js';
import { SCOPE_ADVICE } from './caller.js';
import { letExchangeArrive } from './http-exchange.js';
import { idempotencyOf, type AppIdempotency } from './idempotency-of-app.js';
import { notConfigured } from './idempotent-call.js';
import { isHttpHandler, type IdempotentSite } from './idempotent-site.js';

/* Metadata of Nest. */
const ROUTE_ARGUMENTS = '__routeArguments__';
const PASSTHROUGH = '__responsePassthrough__';
const SERVER_SENT_EVENTS = '__sse__';
const GUARDS = '__guards__';
/** Of `@nestjs/graphql`: queries, mutations and subscriptions; fields; references between subgraphs. */
const GRAPHQL_METHODS = ['graphql:resolver_type', 'graphql:resolve_property', 'graphql:resolve_reference'];
/** `@Res()` and `@Next()`, as numbered by Nest in front of the position. */
const RESPONSE_OR_NEXT = /^[12]:/;

/**
 * At boot, when all decorators have run: refuses what could never work, and has Nest pass the request to HTTP handlers.
 *
 * @throws {LockConfigInvalidError} says what to write
 */
export function checkIdempotent(site: IdempotentSite, locks: LockService): void {
  const app = idempotencyOf(locks);
  if (!app) throw notConfigured(site);
  app.service.checkOptions({ ...site.options, fingerprint: undefined });
  if (isHttpHandler(site)) return checkHandler(site, app);
  if (!site.keyOf && GRAPHQL_METHODS.some((key) => metadataOf(site, key) !== undefined)) {
    refuse("a GraphQL resolver gets no header of its own. Write a key: @Idempotent('payment:<input.id>').");
  }
}

function checkHandler(site: IdempotentSite, app: AppIdempotency): void {
  if (metadataOf(site, SERVER_SENT_EVENTS) !== undefined)
    refuse('a stream of events cannot be kept and given again. Take it off.');
  if (writesItself(site)) {
    refuse(
      'a handler with @Res() or @Next() writes its answer itself, so there is none to keep. Return it, and write ' +
        '@Res({ passthrough: true }) for headers and status.',
    );
  }
  if (isGuarded(site)) requireCaller(site, app);
  letExchangeArrive(site);
}

/**
 * For applications with guards of their own, which are known later than those of a handler.
 *
 * @throws {LockConfigInvalidError} the key is the client's own, and nothing says whose answers a client may see
 */
export function checkCallerIsKnown(site: IdempotentSite, locks: LockService): void {
  const app = idempotencyOf(locks);
  if (app && isHttpHandler(site)) requireCaller(site, app, `@Idempotent on ${site.label}: `);
}

function requireCaller({ keyOf, options }: IdempotentSite, app: AppIdempotency, subject = ''): void {
  if (keyOf || options.scope !== undefined || app.caller) return;
  refuse(`${subject}it has guards, and nothing says who a caller is. Write ${SCOPE_ADVICE}`);
}

function writesItself({ owner, name }: IdempotentSite): boolean {
  if (Reflect.getMetadata(PASSTHROUGH, owner.constructor, name) === true) return false;
  const args = (Reflect.getMetadata(ROUTE_ARGUMENTS, owner.constructor, name) ?? {}) as object;
  return Object.keys(args).some((key) => RESPONSE_OR_NEXT.test(key));
}

function isGuarded(site: IdempotentSite): boolean {
  return metadataOf(site, GUARDS) !== undefined || Reflect.hasMetadata(GUARDS, site.owner.constructor);
}

function metadataOf({ owner, name }: IdempotentSite, key: string): unknown {
  const method = Object.getOwnPropertyDescriptor(owner, name)?.value as object | undefined;
  return method && Reflect.getMetadata(key, method);
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(why);
}
