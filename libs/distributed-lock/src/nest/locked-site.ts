import type { LockOptions } from '../core/index.js';
import { lockOptionsOf, type LockedOptions, type OnBusy } from './locked-options.js';
import { keyOfMethod, type KeyOf, type KeySource } from './method-key.js';
import { classOf, readMethodSource, type MethodPlace } from './method-source.js';
import { resultKindOf, type ResultKind } from './result-kind.js';
import { LEASE_PARAMETERS, LOCKED_SITES } from './tokens.js';

/** One of our decorators on one method. Holds nothing that belongs to a call or an application. */
export interface MethodSite extends MethodPlace {
  readonly decorator: '@Locked' | '@AcceptFencingToken' | '@Idempotent';
  /** `BillingService.settle`, for messages. */
  readonly label: string;
}

/** One `@Locked` on one method, as it stands in the source. */
export interface LockedSite extends MethodSite {
  readonly decorator: '@Locked';
  readonly keyOf: KeyOf;
  readonly kind: ResultKind;
  readonly options: LockOptions;
  readonly onBusy: OnBusy;
  /** Positions of `@CurrentLease()`; parameter decorators run before those of the method. */
  readonly leaseParameters: readonly number[];
}

export function isLocked(site: MethodSite): site is LockedSite {
  return site.decorator === '@Locked';
}

/** @throws {LockConfigInvalidError} the template does not fit the method, or the method cannot be locked */
export function lockedSite(place: MethodPlace, key: KeySource, options: LockedOptions): LockedSite {
  const label = labelOf(place.owner, place.name);
  const source = readMethodSource(place);
  return {
    ...place,
    decorator: '@Locked',
    label,
    keyOf: keyOfMethod(key, { decorator: '@Locked', label, parameters: source?.parameters }),
    kind: options.returns ?? resultKindOf(place, source, label),
    options: lockOptionsOf(options),
    onBusy: options.onBusy ?? 'throw',
    leaseParameters: leaseParametersOf(place.owner).get(place.name) ?? [],
  };
}

export function labelOf(owner: object, name: string | symbol): string {
  return `${classOf(owner).name}.${String(name)}`;
}

/** A site and the function that the decorator put in the place of the method. */
export interface PlacedSite {
  readonly site: MethodSite;
  readonly wrapper: unknown;
}

export function noteSite(placed: PlacedSite): void {
  const { owner } = placed.site;
  Reflect.defineMetadata(LOCKED_SITES, [...sitesOf(owner), placed], owner);
}

/** The sites of this prototype or class itself, in the order in which their decorators ran. */
export function sitesOf(owner: object): readonly PlacedSite[] {
  return (Reflect.getOwnMetadata(LOCKED_SITES, owner) as PlacedSite[] | undefined) ?? [];
}

/** The positions of `@CurrentLease()` parameters, by method. */
export type LeaseParameters = ReadonlyMap<string | symbol, readonly number[]>;

export function leaseParametersOf(owner: object): LeaseParameters {
  return (Reflect.getOwnMetadata(LEASE_PARAMETERS, owner) as LeaseParameters | undefined) ?? new Map();
}

export function noteLeaseParameter(owner: object, name: string | symbol, index: number): void {
  const known = leaseParametersOf(owner);
  const extended = new Map(known).set(name, [...(known.get(name) ?? []), index]);
  Reflect.defineMetadata(LEASE_PARAMETERS, extended, owner);
}
