/** Puts `method` over the one of `object`, on this one instance. */
export function override<T extends object, K extends keyof T>(object: T, name: K, method: T[K]): void {
  Object.defineProperty(object, name, { value: method, configurable: true, writable: true });
}
