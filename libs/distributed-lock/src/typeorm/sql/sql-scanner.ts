import type { Dialect } from './dialect.js';
import { after, endOfEscaped, endOfQuoted, matchAt, unquoted } from './quoted-text.js';

/** A piece of SQL that means something; comments and white space are left out. */
export interface Token {
  /** `text` is a literal, `name` a quoted identifier, `word` anything else that is spelled, `sign` one character. */
  readonly kind: 'word' | 'name' | 'text' | 'sign';
  /** Without quotes. */
  readonly text: string;
}

/** MySQL has a scanner of its own. */
type ScannedDialect = Exclude<Dialect, 'mysql'>;

const SPACE = /\s+/y;
const WORD = /[\p{L}_][\p{L}\p{N}_$]*/uy;
const DOLLAR_QUOTE = /\$(?:[\p{L}_][\p{L}\p{N}_]*)?\$/uy;
/** A carriage return ends it on PostgreSQL only. */
const LINE_COMMENT: Readonly<Record<ScannedDialect, RegExp>> = {
  postgres: /--[^\r\n]*/y,
  sqlite: /--[^\n]*/y,
};
const NAME_QUOTES: Readonly<Record<ScannedDialect, Readonly<Record<string, string>>>> = {
  postgres: { '"': '"' },
  sqlite: { '"': '"', '`': '`', '[': ']' },
};

/** Takes SQL apart, once from left to right. Something that is never closed reaches to the end. */
export function* scan(dialect: ScannedDialect, sql: string): Generator<Token> {
  let at = 0;
  const through = (end: number): string => {
    const start = at;
    at = end;
    return sql.slice(start, end);
  };
  while (at < sql.length) {
    const sign = sql[at] as string;
    const nameQuote = NAME_QUOTES[dialect][sign];
    const word = matchAt(WORD, sql, at);
    const dollar = dialect === 'postgres' && sign === '$' ? matchAt(DOLLAR_QUOTE, sql, at) : '';
    if (/\s/.test(sign)) through(at + matchAt(SPACE, sql, at).length);
    else if (sql.startsWith('--', at)) through(at + matchAt(LINE_COMMENT[dialect], sql, at).length);
    else if (sql.startsWith('/*', at)) through(endOfComment(sql, at, dialect === 'postgres'));
    else if (sign === "'") yield { kind: 'text', text: unquoted(through(endOfQuoted(sql, at, "'")), "'") };
    else if (nameQuote)
      yield { kind: 'name', text: unquoted(through(endOfQuoted(sql, at, nameQuote)), nameQuote) };
    else if (dialect === 'postgres' && /^e$/i.test(word) && sql[at + 1] === "'")
      yield { kind: 'text', text: unquoted(through(endOfEscaped(sql, at + 1, "'")).slice(1), "'") };
    else if (dialect === 'postgres' && /^u$/i.test(word) && sql.startsWith('&"', at + 1)) through(at + 2);
    else if (word) yield { kind: 'word', text: through(at + word.length) };
    else if (dollar) {
      const body = through(after(sql, dollar, at + dollar.length));
      yield { kind: 'text', text: body.slice(dollar.length).replace(dollar, '') };
    } else yield { kind: 'sign', text: through(at + 1) };
  }
}

/** PostgreSQL nests comments, SQLite does not. */
function endOfComment(sql: string, start: number, nests: boolean): number {
  let end = after(sql, '*/', start + 2);
  if (!nests) return end;
  for (
    let inner = sql.indexOf('/*', start + 2);
    inner >= 0 && inner < end;
    inner = sql.indexOf('/*', inner)
  ) {
    inner = endOfComment(sql, inner, true);
    end = after(sql, '*/', inner);
  }
  return end;
}
