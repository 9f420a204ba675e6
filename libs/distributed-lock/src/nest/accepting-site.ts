import { LockConfigInvalidError, type TokenOrigin } from '../core/index.js';
import { ArrivalParameter } from './fencing-token.js';
import { labelOf, type MethodSite } from './locked-site.js';
import { keyOfMethod, type KeyOf, type KeySource } from './method-key.js';
import { isStaticOwner, readMethodSource, type MethodPlace } from './method-source.js';
import { resultKindOf } from './result-kind.js';

/** Finds the token among the arguments of the handler. Undefined and null mean that none came. */
export type TokenSource = (...args: never[]) => number | string | null | undefined;

export interface AcceptFencingTokenOptions<From extends TokenSource = TokenSource> {
  /**
   * The store that the tokens are from, as tokens of two stores do not compare: one of this application by name, or
   * `{ elsewhere: 'billing' }` for one that only the senders have. Default `default`.
   */
  readonly store?: TokenOrigin;
  /** False: a call without a token runs without one, so its guarded writes need a lock of its own. Default true. */
  readonly required?: boolean;
  /**
   * Where the token is, when it is not in a header of HTTP: a function of the handler's own arguments, such as
   * `(job: Job) => job.data.fencingToken`. It may return the number or its digits.
   */
  readonly from?: From;
}

/** One `@AcceptFencingToken` on one method, as it stands in the source. */
export interface AcceptingSite extends MethodSite {
  readonly decorator: '@AcceptFencingToken';
  readonly keyOf: KeyOf;
  readonly streams: boolean;
  readonly store: TokenOrigin | undefined;
  readonly required: boolean;
  readonly from: TokenSource | undefined;
  /** The position behind the method's own parameters, where Nest puts what came with the request. */
  readonly arrivalIndex: number;
}

export function isAccepting(site: MethodSite): site is AcceptingSite {
  return site.decorator === '@AcceptFencingToken';
}

/** @throws {LockConfigInvalidError} the template does not fit the method, or the method cannot show a token */
export function acceptingSite(
  place: MethodPlace,
  key: KeySource,
  { store, required = true, from }: AcceptFencingTokenOptions,
): AcceptingSite {
  const decorator = '@AcceptFencingToken';
  const label = labelOf(place.owner, place.name);
  const source = readMethodSource(place);
  const kind = resultKindOf(place, source, label);
  if (kind === 'async-iterable')
    refuse(label, 'an async generator runs when it is read, not when it is called');
  if (isStaticOwner(place.owner) && !from) refuse(label, 'a static method is no handler; write { from }');
  return {
    ...place,
    decorator,
    label,
    keyOf: keyOfMethod(key, { decorator, label, parameters: source?.parameters }),
    streams: kind === 'observable',
    store,
    required,
    from,
    arrivalIndex: source?.parameters.length ?? place.method.length,
  };
}

/** Nothing is changed for handlers that say themselves where the token is. */
export function letArrive({ owner, name, from, arrivalIndex }: AcceptingSite): void {
  if (!from) ArrivalParameter()(owner, name, arrivalIndex);
}

function refuse(label: string, why: string): never {
  throw new LockConfigInvalidError(`@AcceptFencingToken on ${label}: ${why}.`);
}
