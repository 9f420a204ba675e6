import { LockConfigInvalidError, LockKeyInvalidError } from './errors.js';
import { isBroken, qualifyKey, requireKey } from './lock-key.js';

export interface KeyScopeOptions {
  /** Put before every key, so that two applications can share a server. */
  readonly namespace?: string;
  /** The tenant of the present call; becomes part of every key. Undefined refuses the call. */
  readonly scope?: () => string | undefined;
}

/** Turns the user's key into the one that stores and fences know. */
export class KeyScope {
  /** @throws {LockConfigInvalidError} the namespace is no name */
  constructor(private readonly options: KeyScopeOptions) {
    if (options.namespace !== undefined && !isName(options.namespace)) {
      throw new LockConfigInvalidError(
        'The namespace must be well-formed text that is not empty. Leave it out, or name the application.',
      );
    }
  }

  /** @throws {LockKeyInvalidError} a scope is configured and gave nothing: the tenant would be anybody's guess */
  qualify(key: string, scope: 'global' | undefined): string {
    const qualified = qualifyKey(key, this.options.namespace, this.#tenant(key, scope));
    return qualified === key ? key : requireKey(qualified);
  }

  /** Undefined without tenants, null for work that belongs to none. */
  #tenant(key: string, scope: 'global' | undefined): string | null | undefined {
    if (!this.options.scope) return undefined;
    if (scope === 'global') return null;
    const tenant = this.options.scope();
    if (isName(tenant)) return tenant;
    throw new LockKeyInvalidError(
      `The configured scope gave no usable value for "${key}", so its tenant is unknown. Nothing was locked; ` +
        "set the scope for this call, or write { scope: 'global' } for work that belongs to no tenant.",
      { key },
    );
  }
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !isBroken(value);
}
