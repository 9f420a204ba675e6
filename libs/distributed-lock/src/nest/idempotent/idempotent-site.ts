import { LockConfigInvalidError } from '../../core/index.js';
import { labelOf, leaseParametersOf, sitesOf, type MethodSite } from '../locked-site.js';
import { keyOfMethod, type KeyOf, type KeySource } from '../method-key.js';
import { isStaticOwner, readMethodSource, type MethodPlace } from '../method-source.js';
import { resultKindOf } from '../result-kind.js';
import type { IdempotentOptions } from './idempotent-options.js';

/** One `@Idempotent` on one method, as it stands in the source. */
export interface IdempotentSite extends MethodSite {
  readonly decorator: '@Idempotent';
  /** Undefined when no key is written: then it is made of the arguments, or comes in a header. */
  readonly keyOf: KeyOf | undefined;
  readonly options: IdempotentOptions;
  /** Where the method takes a lease, which is no part of what was asked for. */
  readonly leaseParameters: readonly number[];
  /** Behind the method's own parameters and a fencing token's: where Nest puts the request. */
  readonly requestIndex: number;
}

export function isIdempotent(site: MethodSite): site is IdempotentSite {
  return site.decorator === '@Idempotent';
}

/** @throws {LockConfigInvalidError} the template does not fit the method, or its result cannot be kept */
export function idempotentSite(
  place: MethodPlace,
  key: KeySource | undefined,
  options: IdempotentOptions,
): IdempotentSite {
  const decorator = '@Idempotent';
  const label = labelOf(place.owner, place.name);
  const source = readMethodSource(place);
  const kind = resultKindOf(place, source, label);
  if (kind !== 'promise') {
    throw new LockConfigInvalidError(
      `${decorator} on ${label}: it returns a stream, which cannot be kept and given again. Return a promise of one ` +
        'value, e.g. lastValueFrom(…).',
    );
  }
  const parameters = source?.parameters;
  return {
    ...place,
    decorator,
    label,
    keyOf: key === undefined ? undefined : keyOfMethod(key, { decorator, label, parameters }),
    options,
    leaseParameters: leaseParametersOf(place.owner).get(place.name) ?? [],
    requestIndex: (parameters?.length ?? place.method.length) + 1,
  };
}

/** What our decorators have put on a method so far, innermost first. */
export function sitesBelow(owner: object, name: string | symbol): readonly MethodSite[] {
  return sitesOf(owner)
    .map(({ site }) => site)
    .filter((site) => site.name === name);
}

/** Set by `@Get`, `@Post` and so on. */
const HTTP_PATH = 'path';

/** Known once all decorators have run. */
export function isHttpHandler({ owner, name }: MethodSite): boolean {
  const method = Object.getOwnPropertyDescriptor(owner, name)?.value as object | undefined;
  return !isStaticOwner(owner) && method !== undefined && Reflect.hasMetadata(HTTP_PATH, method);
}

export function isKey(given: unknown): given is KeySource {
  return typeof given === 'string' || typeof given === 'function';
}
