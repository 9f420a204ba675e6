import { AsyncLocalStorage } from 'node:async_hooks';

import type { MethodSite } from '../locked-site.js';

/** A method by its place. */
interface MethodName {
  readonly owner: object;
  readonly name: string | symbol;
}

type Invoke = () => unknown;

/**
 * One call on its way from the outermost of our decorators, where the record is claimed, to the method: it counts as begun
 * only when the innermost one is reached, with every lock held. So a busy lock frees the record, whatever the order.
 */
interface Passage extends MethodName {
  entered: boolean;
  readonly enter: (invoke: Invoke) => unknown;
}

const passages = new AsyncLocalStorage<Passage>();

/** Goes the rest of the way, and has `enter` called at its end. */
export function goThrough<T>({ owner, name }: MethodName, enter: Passage['enter'], rest: () => T): T {
  return passages.run({ owner, name, entered: false, enter }, rest);
}

/** True between the claim and the method. Once entered, a nested call of the same method is a call of its own. */
export function isPassing(method: MethodName): boolean {
  return passageOf(method) !== undefined;
}

/** The end of the way: begins the body. Without a passage, just calls it. */
export function enterBody(method: MethodName, invoke: Invoke): unknown {
  const passage = passageOf(method);
  if (!passage) return invoke();
  passage.entered = true;
  return passage.enter(invoke);
}

/** For the decorator of a method that has no other one of ours below it: where it calls the method, the body begins. */
export function enteringBody<S extends MethodSite>(site: S, below: readonly MethodSite[]): S {
  if (below.length > 0) return site;
  const { method } = site;
  const entering = function (this: unknown, ...args: never[]): unknown {
    return enterBody(site, () => method.apply(this, args));
  };
  return { ...site, method: entering };
}

function passageOf({ owner, name }: MethodName): Passage | undefined {
  const passage = passages.getStore();
  return passage && !passage.entered && passage.owner === owner && passage.name === name
    ? passage
    : undefined;
}
