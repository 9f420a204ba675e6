import { createHash } from 'node:crypto';

/** A script of the store as it was sent, or a weaker one in its place. */
export type Rewrite = (script: string) => string;

/** The store sends digests once a server knows a text: here the texts are kept, so that each can be replaced. */
export class ScriptTexts {
  readonly #texts = new Map<string, string>();

  keep(text: string): void {
    this.#texts.set(digestOf(text), text);
  }

  of(sha1: string): string {
    const text = this.#texts.get(sha1);
    if (text === undefined) throw new Error('NOSCRIPT No matching script. Please use EVAL.');
    return text;
  }
}

const digests = new Map<string, string>();

/** As the server knows the text. */
export function digestOf(text: string): string {
  const known = digests.get(text) ?? createHash('sha1').update(text).digest('hex');
  digests.set(text, known);
  return known;
}

export type ScriptName = 'grant' | 'raise' | 'renew' | 'release' | 'look' | 'admit';

export function nameOf(text: string): ScriptName {
  if (text.includes("'granted'")) return 'grant';
  if (text.includes("'raised'")) return 'raise';
  if (text.includes("'renewed'")) return 'renew';
  if (text.includes("'released'")) return 'release';
  return text.includes("'changed'") ? 'admit' : 'look';
}

/** @throws {Error} the store's script is no longer the one that this was written for */
export function replaced(script: string, part: string, by: string): string {
  if (!script.includes(part)) throw new Error(`the script has no ${JSON.stringify(part)} any more`);
  return script.replace(part, by);
}

export const OWNERSHIP = `if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'refused'} end`;
export const NOT_BEYOND = `if not fence or fence > token then return {'refused'} end`;
export const CLOCK_FLOOR = 'math.max(tonumber(node[2]), micros())';
