import {
  isLockKey,
  LockConfigInvalidError,
  LockKeyInvalidError,
  parseKeyTemplate,
  renderKey,
  type KeyInput,
  type KeyTemplate,
  type LabelledKey,
  type Placeholder,
} from '../core/index.js';
import type { Parameter } from './method-source.js';

/** A template, or a function of the method's arguments. */
export type KeySource = string | { readonly template: KeyTemplate } | KeyFunction;
export type KeyFunction = (...args: never[]) => string | LabelledKey;

/** What a key is made for. `parameters` are unknown when the source of the method cannot be read. */
export interface KeyedMethod {
  /** `@Locked`, for messages. */
  readonly decorator: string;
  /** `BillingService.settle` */
  readonly label: string;
  readonly parameters: readonly Parameter[] | undefined;
}

/** Makes the key of one call out of its arguments; keeps nothing between calls. */
export type KeyOf = (args: readonly unknown[]) => KeyInput;

/**
 * @throws {LockConfigInvalidError} the template names no parameter of the method, or cannot be read
 */
export function keyOfMethod(source: KeySource, method: KeyedMethod): KeyOf {
  if (typeof source === 'function' && !isLockKey(source)) return keyOfFunction(source, method);
  const template = typeof source === 'string' ? parseFor(method, source) : source.template;
  const indexes = new Map(template.placeholders.map((one) => [one, argumentIndex(one, template, method)]));
  return (args) => ({
    key: renderKey(template, (one) => one.path.slice(1).reduce(property, args[indexes.get(one) as number])),
    template: template.text,
  });
}

function keyOfFunction(source: KeyFunction, { label }: KeyedMethod): KeyOf {
  return (args) => {
    const key: unknown = source(...(args as never[]));
    if (typeof key === 'string' || isLabelled(key)) return key;
    throw new LockKeyInvalidError(
      `The key function of ${label} returned ${Array.isArray(key) ? 'an array' : `a value of type ${typeof key}`}; ` +
        'it has to return one key, as text. Nothing was locked and the method did not run.',
    );
  };
}

function isLabelled(key: unknown): key is LabelledKey {
  return typeof key === 'object' && key !== null && 'key' in key && 'template' in key;
}

function parseFor({ decorator, label }: KeyedMethod, text: string): KeyTemplate {
  try {
    return parseKeyTemplate(text);
  } catch (cause) {
    throw new LockConfigInvalidError(`${decorator} on ${label}: ${(cause as Error).message}`, { cause });
  }
}

function argumentIndex({ path, source }: Placeholder, template: KeyTemplate, method: KeyedMethod): number {
  const [head = ''] = path;
  const { parameters } = method;
  const refuse = (why: string): never => {
    throw new LockConfigInvalidError(
      `${method.decorator} on ${method.label}: "${template.text}" names <${source}>, ${why}`,
    );
  };
  const index = /^\d+$/.test(head) ? Number(head) : (parameters ?? []).findIndex(({ name }) => name === head);
  if (index < 0) return refuse(unknownName(head, parameters));
  if (!parameters) return index;
  const rest = parameters.at(-1)?.rest === true;
  if (parameters[index]?.rest && head === parameters[index].name)
    return refuse('which collects several arguments; write <0>, <1> … for one of them, or a function.');
  if (!rest && index >= parameters.length)
    return refuse(`but the method has ${parameters.length} parameters; the first one is <0>.`);
  return index;
}

function unknownName(name: string, parameters: readonly Parameter[] | undefined): string {
  if (!parameters) {
    return `but the source of the method cannot be read; write its position, e.g. <0>, or a function.`;
  }
  const known = parameters.map((parameter, i) => `<${parameter.name ?? i}>`).join(', ') || 'none';
  return (
    `which is no parameter of it; there are: ${known}. Write one of these, a position such as <0>, or a function. ` +
    'A minifier renames parameters: under one, only positions and functions work.'
  );
}

function property(holder: unknown, name: string): unknown {
  return holder === null || holder === undefined ? undefined : (holder as Record<string, unknown>)[name];
}
