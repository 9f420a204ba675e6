import { parse, type Class, type Expression, type MethodDefinition, type Pattern } from 'acorn';

/** What the source of a method says about it. */
export interface MethodSource {
  readonly parameters: readonly Parameter[];
  readonly async: boolean;
  readonly generator: boolean;
}

export interface Parameter {
  /** Null when it is destructured. */
  readonly name: string | null;
  readonly rest: boolean;
}

export interface MethodPlace {
  /** The prototype, or the class itself for a static method. */
  readonly owner: object;
  readonly name: string | symbol;
  readonly method: (...args: never[]) => unknown;
}

type ClassConstructor = abstract new (...args: never[]) => unknown;

const classes = new WeakMap<ClassConstructor, Class | null>();

/**
 * Reads a method in the source of its class, because another decorator may have wrapped the function already; in the
 * function's own source where the class does not show it. Undefined when neither can be read.
 */
export function readMethodSource(place: MethodPlace): MethodSource | undefined {
  const found = methodInClass(place) ?? ownSource(place.method);
  if (!found) return undefined;
  const { params, async, generator } = found;
  return { parameters: params.map(parameterOf), async, generator };
}

export function isStaticOwner(owner: object): owner is ClassConstructor {
  return typeof owner === 'function';
}

export function classOf(owner: object): ClassConstructor {
  return isStaticOwner(owner) ? owner : (owner.constructor as ClassConstructor);
}

function methodInClass({ owner, name }: MethodPlace): MethodDefinition['value'] | undefined {
  const isStatic = isStaticOwner(owner);
  const members = parsedClass(classOf(owner))?.body.body ?? [];
  const methods = members.filter((member): member is MethodDefinition => member.type === 'MethodDefinition');
  // The last one of two with the same name is the one that counts.
  return methods.findLast((method) => method.static === isStatic && isNamed(method, name))?.value;
}

function parsedClass(constructor: ClassConstructor): Class | null {
  let parsed = classes.get(constructor);
  if (parsed === undefined) {
    const expression = parseExpression(Function.prototype.toString.call(constructor));
    parsed = expression?.type === 'ClassExpression' ? expression : null;
    classes.set(constructor, parsed);
  }
  return parsed;
}

function isNamed({ key, computed }: MethodDefinition, name: string | symbol): boolean {
  if (key.type === 'Literal') return String(key.value) === name;
  return !computed && key.type === 'Identifier' && key.name === name;
}

/** `settle(id) {}` is how a method prints itself; `function (id) {}` and `(id) => {}` are expressions. */
function ownSource(
  method: MethodPlace['method'],
): Pick<MethodDefinition['value'], 'params' | 'async' | 'generator'> | undefined {
  const text = Function.prototype.toString.call(method);
  const member = parseExpression(`class { ${text} }`);
  if (member?.type === 'ClassExpression') {
    const [first] = member.body.body;
    if (first?.type === 'MethodDefinition') return first.value;
  }
  const expression = parseExpression(text);
  const isFunction =
    expression?.type === 'FunctionExpression' || expression?.type === 'ArrowFunctionExpression';
  return isFunction ? expression : undefined;
}

function parseExpression(text: string): Expression | undefined {
  for (const sourceType of ['module', 'script'] as const) {
    try {
      const { body } = parse(`(${text}\n)`, { ecmaVersion: 'latest', sourceType, checkPrivateFields: false });
      return body[0]?.type === 'ExpressionStatement' ? body[0].expression : undefined;
    } catch {
      // Not this kind of source, or native code, which has none.
    }
  }
  return undefined;
}

function parameterOf(pattern: Pattern): Parameter {
  if (pattern.type === 'RestElement') return { ...parameterOf(pattern.argument), rest: true };
  if (pattern.type === 'AssignmentPattern') return parameterOf(pattern.left);
  return { name: pattern.type === 'Identifier' ? pattern.name : null, rest: false };
}
