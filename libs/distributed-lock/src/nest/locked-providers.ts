import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { ApplicationConfig, ModulesContainer } from '@nestjs/core';

import { LockService } from '../core/index.js';
import { checkOwner } from './boot-check.js';
import { checkCallerIsKnown, isIdempotent } from './idempotent/index.js';
import { sitesOf } from './locked-site.js';
import { bindLocks } from './locks-of-object.js';

type NestModule = ModulesContainer extends Map<string, infer M> ? M : never;
type ProviderWrapper = NestModule['providers'] extends Map<unknown, infer W> ? W : never;
type ClassLike = { readonly name: string; readonly prototype: unknown };
type Factory = (...dependencies: unknown[]) => unknown;

/**
 * Finds the locked methods of an application, checks them, and gives the LockService to what Nest does not inject into:
 * objects from `useFactory` and `useValue`, overrides in tests, and classes with static methods.
 */
@Injectable()
export class LockedProviders implements OnModuleInit {
  readonly #checked = new Set<object>();

  constructor(
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(LockService) private readonly locks: LockService,
    @Inject(ApplicationConfig) private readonly application: ApplicationConfig,
  ) {
    for (const wrapper of this.#wrappers()) this.#watchFactory(wrapper);
    this.#visitAll();
  }

  /** Once more, for objects that were not made yet. The module is global, so this runs before the hooks of others. */
  onModuleInit(): void {
    this.#visitAll();
    this.#checkCallers();
  }

  /** Guards of the whole application were not known before. */
  #checkCallers(): void {
    const guards = [...this.application.getGlobalGuards(), ...this.application.getGlobalRequestGuards()];
    if (guards.length === 0) return;
    const sites = [...this.#checked].flatMap((owner) => sitesOf(owner).map(({ site }) => site));
    for (const site of sites.filter(isIdempotent)) checkCallerIsKnown(site, this.locks);
  }

  #visitAll(): void {
    for (const wrapper of this.#wrappers()) {
      const { metatype, inject, instance } = wrapper;
      if (typeof metatype === 'function' && !inject) this.#visitClass(metatype);
      else this.#visitObject(instance);
    }
  }

  #wrappers(): ProviderWrapper[] {
    return [...this.modules.values()].flatMap(({ providers, controllers, injectables, middlewares }) =>
      [providers, controllers, injectables, middlewares].flatMap((kind) => [
        ...(kind as Map<unknown, ProviderWrapper>).values(),
      ]),
    );
  }

  /** So that what it makes later, e.g. for each request, is found as well. */
  #watchFactory(wrapper: ProviderWrapper): void {
    if (!wrapper.inject || typeof wrapper.metatype !== 'function') return;
    const factory = wrapper.metatype as unknown as Factory;
    const watched = (...dependencies: unknown[]): unknown => {
      const made = factory(...dependencies);
      if (!(made instanceof Promise)) return this.#visitObject(made);
      return made.then((object: unknown) => this.#visitObject(object));
    };
    Object.defineProperty(watched, 'name', { value: factory.name });
    wrapper.metatype = watched;
  }

  #visitClass(type: ClassLike): void {
    for (const owner of chainOf(type)) {
      this.#check(owner);
      if (sitesOf(owner)[0]) bindLocks(owner, this.locks, type.name);
    }
    for (const owner of chainOf(type.prototype)) this.#check(owner);
  }

  #visitObject<T>(object: T): T {
    if (typeof object === 'function') this.#visitClass(object);
    if (typeof object !== 'object' || object === null) return object;
    const type: unknown = object.constructor;
    if (typeof type === 'function') this.#visitClass(type);
    const placed = chainOf(Object.getPrototypeOf(object)).flatMap(sitesOf)[0];
    if (placed) bindLocks(object, this.locks, placed.site.label);
    return object;
  }

  #check(owner: object): void {
    if (this.#checked.has(owner)) return;
    this.#checked.add(owner);
    checkOwner(owner, this.locks);
  }
}

/** An object and what it inherits from, without what every object or function inherits from. */
function chainOf(start: unknown): object[] {
  const chain: object[] = [];
  for (let link = start; isOwn(link); link = Object.getPrototypeOf(link)) chain.push(link);
  return chain;
}

function isOwn(link: unknown): link is object {
  return (
    ((typeof link === 'object' && link !== null) || typeof link === 'function') &&
    link !== Object.prototype &&
    link !== Function.prototype
  );
}
