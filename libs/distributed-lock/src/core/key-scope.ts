import { LockKeyInvalidError } from './errors.js';
import { qualifyKey } from './lock-key.js';

export interface KeyScopeOptions {
  /** Put before every key, so that two applications can share a server. */
  readonly namespace?: string;
  /** The tenant of the present call; becomes part of every key. Undefined refuses the call. */
  readonly scope?: () => string | undefined;
}

/** Turns the user's key into the one that stores and fences know. */
export class KeyScope {
  constructor(private readonly options: KeyScopeOptions) {}

  /** @throws {LockKeyInvalidError} a scope is configured and gave nothing: the tenant would be anybody's guess */
  qualify(key: string, scope: 'global' | undefined): string {
    return qualifyKey(key, this.options.namespace, this.#tenant(key, scope));
  }

  /** Undefined without tenants, null for work that belongs to none. */
  #tenant(key: string, scope: 'global' | undefined): string | null | undefined {
    if (!this.options.scope) return undefined;
    if (scope === 'global') return null;
    const tenant = this.options.scope();
    if (typeof tenant === 'string' && tenant !== '') return tenant;
    throw new LockKeyInvalidError(
      `The configured scope gave no value for "${key}", so its tenant is unknown. Nothing was locked; ` +
        "set the scope for this call, or write { scope: 'global' } for work that belongs to no tenant.",
      { key },
    );
  }
}
