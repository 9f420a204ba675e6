import { after, endOfEscaped, endOfQuoted, matchAt, unquoted } from './quoted-text.js';
import type { Token } from './sql-scanner.js';

/** In which quotes a backslash takes the next character with it. The sql_mode of each session decides. */
interface Backslashes {
  readonly escapes: readonly string[];
}

const USUAL: Backslashes = { escapes: ["'", '"'] };
/** ANSI_QUOTES: what stands in double quotes is a name. NO_BACKSLASH_ESCAPES: a backslash is a character like any other. */
const UNDER_OTHER_MODES: readonly Backslashes[] = [{ escapes: ["'"] }, { escapes: [] }];

const SPACE = /\s+/y;
/** Names may begin with a digit, so numbers are words as well. */
const WORD = /[\p{L}\p{N}_$\u0080-\uffff]+/uy;
/** Two dashes need a space behind them: `5--1` is 6. */
const LINE_COMMENT = /#|--(?=[\s\p{Cc}]|$)/uy;
/** Code for versions of MySQL or MariaDB, in the clothes of a comment. */
const CODE_COMMENT = /\/\*M?!\d*/y;

/** The ways to read `sql`, which differ only where it has backslashes: nobody can tell here which mode the session is in. */
export function mysqlReadings(sql: string): readonly (readonly Token[])[] {
  const modes = sql.includes('\\') ? [USUAL, ...UNDER_OTHER_MODES] : [USUAL];
  return modes.map((mode) => [...scanMysql(sql, mode)]);
}

function* scanMysql(sql: string, { escapes }: Backslashes): Generator<Token> {
  let at = 0;
  let inCodeComment = false;
  const through = (end: number): string => {
    const start = at;
    at = end;
    return sql.slice(start, end);
  };
  while (at < sql.length) {
    const sign = sql[at] as string;
    const skipped = matchAt(SPACE, sql, at);
    const code = matchAt(CODE_COMMENT, sql, at);
    const word = matchAt(WORD, sql, at);
    if (skipped) through(at + skipped.length);
    else if (code) {
      inCodeComment = true;
      through(at + code.length);
    } else if (inCodeComment && sql.startsWith('*/', at)) {
      inCodeComment = false;
      through(at + 2);
    } else if (sql.startsWith('/*', at)) through(after(sql, '*/', at + 2));
    else if (matchAt(LINE_COMMENT, sql, at)) through(after(sql, '\n', at));
    else if (sign === '`') yield { kind: 'name', text: unquoted(through(endOfQuoted(sql, at, sign)), sign) };
    else if (sign === "'" || sign === '"') {
      const end = (escapes.includes(sign) ? endOfEscaped : endOfQuoted)(sql, at, sign);
      // Under ANSI_QUOTES it is a name, and where only a name can stand it cannot be anything else.
      yield { kind: sign === '"' ? 'name' : 'text', text: unquoted(through(end), sign) };
    } else if (word) yield { kind: 'word', text: through(at + word.length) };
    else yield { kind: 'sign', text: through(at + 1) };
  }
}
