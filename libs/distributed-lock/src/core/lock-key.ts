import { LockConfigInvalidError, LockKeyInvalidError } from './errors.js';

/** What may stand for `<name>` in a key. Strings must not be empty, numbers must be finite. 1 and '1' give one key. */
export type KeyPart = string | number | bigint | boolean;

/** `<id>`, `<invoice.id>` or `<0>`: where a value comes from. */
export interface Placeholder {
  readonly source: string;
  /** The parameter's name or position, then the properties that lead to the value. */
  readonly path: readonly string[];
}

/** A template taken apart: `literals` has one element more than `placeholders` and surrounds them. */
export interface KeyTemplate {
  readonly text: string;
  readonly literals: readonly string[];
  readonly placeholders: readonly Placeholder[];
}

type Nest<Path extends string> = Path extends `${infer Head}.${infer Rest}`
  ? { readonly [K in Head]: Nest<Rest> }
  : { readonly [K in Path]: KeyPart };

type Values<Text extends string> = Text extends `${string}<${infer Path}>${infer Rest}`
  ? Nest<Path> & Values<Rest>
  : unknown;

/**
 * A template that renders its keys: `InvoiceKey({ id: 42 })` is `'invoice:42'`. Every API that takes a key takes it, so
 * that no key is spelled twice.
 */
export interface LockKey<Text extends string = string> {
  (values: Values<Text>): string;
  readonly template: KeyTemplate;
}

/** A key together with the template it came from, which labels its events and metrics. */
export interface LabelledKey {
  readonly key: string;
  readonly template: string;
}

/** What takes the place of a key: its text, a template without placeholders, or a rendered key with its template. */
export type KeyInput = string | LockKey | LabelledKey;

/** Characters of a value that stay as they are; all others become %XX, so no value can imitate a literal. */
const PLAIN = /^[A-Za-z0-9_.-]+$/;
const PLACEHOLDER = /^(?:[A-Za-z_$][\w$]*|\d+)(?:\.[A-Za-z_$][\w$]*)*$/;
const LONGEST_KEY = 1_024;

/**
 * Makes a key out of a template such as `'invoice:<id>'`.
 *
 * Values are escaped: `<a>:<b>` of (`x:y`, `z`) and of (`x`, `y:z`) are two keys. Rendering throws `LOCK_KEY_INVALID`
 * for undefined, null, '', NaN and objects.
 *
 * @throws {LockConfigInvalidError} the template has an unclosed `<`, one of `{ } # %`, or two placeholders with nothing
 *   between them that a value cannot contain
 */
export function lockKey<const Text extends string>(text: Text): LockKey<Text> {
  const template = parseKeyTemplate(text);
  const render = (values: Values<Text>): string =>
    renderKey(template, ({ path }) => path.reduce<unknown>(property, values));
  return Object.assign(render, { template });
}

export function isLockKey(key: unknown): key is LockKey {
  return typeof key === 'function' && 'template' in key;
}

/** @throws {LockConfigInvalidError} see {@link lockKey} */
export function parseKeyTemplate(text: string): KeyTemplate {
  const literals: string[] = [];
  const placeholders: Placeholder[] = [];
  let rest = text;
  for (let open = rest.indexOf('<'); open >= 0; open = rest.indexOf('<')) {
    const close = rest.indexOf('>', open);
    if (close < 0)
      refuse(text, `"${rest.slice(open)}" opens a placeholder that is never closed; write "<name>"`);
    literals.push(rest.slice(0, open));
    placeholders.push(parsePlaceholder(text, rest.slice(open + 1, close)));
    rest = rest.slice(close + 1);
  }
  literals.push(rest);
  checkLiterals(text, literals);
  return { text, literals, placeholders };
}

/** @throws {LockKeyInvalidError} a value is not a {@link KeyPart}; nothing was locked */
export function renderKey(template: KeyTemplate, valueOf: (placeholder: Placeholder) => unknown): string {
  let key = template.literals[0] as string;
  template.placeholders.forEach((placeholder, i) => {
    key += escapePart(template, placeholder, valueOf(placeholder)) + template.literals[i + 1];
  });
  return requireKey(key);
}

/** The values that rendered `key`, as text and in order; null when the key is not one of this template's. */
export function matchKey(template: KeyTemplate, key: string): readonly string[] | null {
  const pattern = template.literals.map(escapePattern).join('([A-Za-z0-9_.%-]+)');
  const match = new RegExp(`^${pattern}$`).exec(key);
  if (!match) return null;
  const values = match.slice(1).map(unescapePart);
  return values.every((value, i) => value !== null && encode(value) === match[i + 1])
    ? (values as string[])
    : null;
}

/**
 * The key and its label. Plain text is labelled by what stands before its first colon, so that a million invoices do not
 * become a million labels.
 *
 * @throws {LockConfigInvalidError} a template with placeholders has to be rendered first
 */
export function labelledKey(input: KeyInput): LabelledKey {
  if (typeof input === 'string') return { key: requireKey(input), template: labelOf(input) };
  if (!isLockKey(input)) return { key: requireKey(keyIn(input)), template: input.template };
  const { text, placeholders } = input.template;
  if (placeholders[0]) {
    throw new LockConfigInvalidError(
      `"${text}" is a template, not a key. Nothing was locked; render it: Key({ ${placeholders[0].path[0]}: … }).`,
    );
  }
  return { key: text, template: text };
}

/** Callers without types pass anything. */
function keyIn(input: LabelledKey): unknown {
  return typeof input === 'object' && input !== null ? input.key : input;
}

/** @throws {LockKeyInvalidError} the key is empty, too long or not well-formed text */
export function requireKey(key: unknown): string {
  if (typeof key !== 'string' || key === '') {
    throw new LockKeyInvalidError(
      `A lock key must be a non-empty string, not ${describe(key)}. Nothing was locked.`,
    );
  }
  if (key.length > LONGEST_KEY) {
    throw new LockKeyInvalidError(
      `A lock key may have ${LONGEST_KEY} characters, this one has ${key.length}. Nothing was locked; lock a hash of it.`,
    );
  }
  if (isBroken(key)) {
    throw new LockKeyInvalidError('A lock key has half of a surrogate pair. Nothing was locked.');
  }
  return key;
}

/** Puts the namespace and the scope before a key, both escaped, so that none of the three can imitate another. */
export function qualifyKey(
  key: string,
  namespace: string | undefined,
  scope: string | null | undefined,
): string {
  const scoped = scope === undefined ? key : `~${scope === null ? '' : encode(scope)}:${key}`;
  return namespace === undefined ? scoped : `${encode(namespace)}:${scoped}`;
}

function parsePlaceholder(text: string, source: string): Placeholder {
  if (!PLACEHOLDER.test(source)) {
    refuse(text, `"<${source}>" is no parameter; write "<name>", "<name.property>" or "<0>"`);
  }
  return { source, path: source.split('.') };
}

function checkLiterals(text: string, literals: readonly string[]): void {
  if (text === '') refuse(text, 'it is empty');
  const odd = /[{}#%>\p{Cc}\p{Cs}]/u.exec(literals.join(''));
  if (odd) refuse(text, `it may not contain ${JSON.stringify(odd[0])}`);
  if (literals.slice(1, -1).some((literal) => literal === '' || PLAIN.test(literal))) {
    refuse(text, 'two placeholders need a separator between them that no value can contain; write "<a>:<b>"');
  }
}

function refuse(text: string, why: string): never {
  throw new LockConfigInvalidError(`The lock key template ${JSON.stringify(text)} is not usable: ${why}.`);
}

function escapePart(template: KeyTemplate, { source }: Placeholder, value: unknown): string {
  const text = partText(value);
  if (text === null || isBroken(text)) {
    throw new LockKeyInvalidError(
      `The lock key "${template.text}" needs a value for <${source}>, and got ${describe(value)}. ` +
        'Nothing was locked and the method did not run; pass a non-empty string, a finite number, a bigint or a boolean.',
    );
  }
  return encode(text);
}

function partText(value: unknown): string | null {
  switch (typeof value) {
    case 'string':
      return value === '' ? null : value;
    case 'number':
      return Number.isFinite(value) ? String(value) : null;
    case 'bigint':
    case 'boolean':
      return String(value);
    default:
      return null;
  }
}

function encode(text: string): string {
  if (PLAIN.test(text)) return text;
  return encodeURIComponent(text).replace(
    /[!~*'()]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function unescapePart(escaped: string): string | null {
  try {
    return decodeURIComponent(escaped);
  } catch {
    return null; // not an escape of ours, so the key was not rendered from this template
  }
}

function escapePattern(literal: string): string {
  return literal.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

function property(holder: unknown, name: string): unknown {
  return holder === null || holder === undefined ? undefined : (holder as Record<string, unknown>)[name];
}

function labelOf(key: string): string {
  const colon = key.indexOf(':');
  return colon < 0 ? key : `${key.slice(0, colon)}:…`;
}

const ASCII = /^[\0-\x7f]*$/;

export function isBroken(text: string): boolean {
  return !ASCII.test(text) && /\p{Surrogate}/u.test(text);
}

function describe(value: unknown): string {
  if (value === '') return 'an empty string';
  if (value === null || value === undefined || typeof value === 'number') return String(value);
  return `a value of type ${typeof value}`;
}
