import { mysqlReadings } from './mysql-scanner.js';
import type { Token } from './sql-scanner.js';
import { BEFORE_NO_WRITE, type SqlWrite, type WriteVerb } from './sql-write.js';

type Path = readonly string[];

const MODIFIER = /^(?:LOW_PRIORITY|HIGH_PRIORITY|DELAYED|QUICK|IGNORE)$/;
/** What a table may stand behind, in the list of an UPDATE or DELETE. */
const BEFORE_TABLE = /^(?:,|\(|JOIN|STRAIGHT_JOIN|FROM|USING)$/;
const NO_TABLE = /^(?:SELECT|SET|JOIN|STRAIGHT_JOIN|FROM|USING)$/;
const LISTS: Readonly<Record<string, RegExp>> = {
  UPDATE: /^(?:SET|;)$/,
  DELETE: /^(?:WHERE|ORDER|LIMIT|RETURNING|;)$/,
};

/**
 * Finds the tables that `sql` may write on MySQL or MariaDB. Of a statement on several tables it names all of them: which
 * one a column belongs to only the database knows. Where the sql_mode decides what is text, it takes every reading.
 */
export function mysqlWritesOf(sql: string): readonly SqlWrite[] {
  const [usual = [], ...others] = mysqlReadings(sql).map((tokens) => new MysqlWriteReader(tokens).read());
  return [usual, ...others.filter((writes) => JSON.stringify(writes) !== JSON.stringify(usual))].flat();
}

class MysqlWriteReader {
  #at = 0;

  constructor(private readonly tokens: readonly Token[]) {}

  read(): readonly SqlWrite[] {
    const writes: SqlWrite[] = [];
    for (this.#at = 0; this.#at < this.tokens.length; this.#at += 1) writes.push(...this.#writesHere());
    return writes;
  }

  #writesHere(): readonly SqlWrite[] {
    const verb = this.#word(0);
    if (BEFORE_NO_WRITE.test(this.#word(-1)) && !this.#endsSettings()) return [];
    switch (verb) {
      case 'INSERT':
      case 'REPLACE':
        return this.#insert(verb);
      case 'UPDATE':
      case 'DELETE':
        return this.#list(verb);
      case 'TRUNCATE':
        return this.#one(verb, this.#word(1) === 'TABLE' ? 2 : 1);
      case 'LOAD':
        return this.#one(verb, this.#find('TABLE') + 1);
      case 'PREPARE':
        return this.#inText(3);
      case 'EXECUTE':
        return this.#word(1) === 'IMMEDIATE' ? this.#inText(2) : [];
      default:
        return [];
    }
  }

  /** MariaDB: SET STATEMENT max_statement_time = 1 FOR UPDATE invoice … */
  #endsSettings(): boolean {
    let start = 0;
    while (this.#token(start - 1) && this.#spelled(start - 1) !== ';') start -= 1;
    return this.#word(-1) === 'FOR' && this.#word(start) === 'SET' && this.#word(start + 1) === 'STATEMENT';
  }

  /** INSERT() and REPLACE() are functions as well; INTO may be left out. */
  #insert(verb: WriteVerb): readonly SqlWrite[] {
    const { next, ignores } = this.#modifiers();
    const onDuplicate = verb === 'INSERT' && this.#find('DUPLICATE') > 0;
    return this.#one(verb, this.#word(next) === 'INTO' ? next + 1 : next, ignores || onDuplicate);
  }

  #list(verb: 'UPDATE' | 'DELETE'): readonly SqlWrite[] {
    const { next, ignores } = this.#modifiers();
    const isEnd = (offset: number): boolean =>
      this.#token(offset) === undefined || (LISTS[verb] as RegExp).test(this.#spelled(offset));
    const writes: SqlWrite[] = [];
    for (let offset = next; !isEnd(offset); offset += 1) {
      const isOuterJoin = this.#spelled(offset - 2) === '{'; // { OJ a LEFT OUTER JOIN b … }
      if (offset === next || isOuterJoin || BEFORE_TABLE.test(this.#spelled(offset - 1)))
        writes.push(...this.#one(verb, offset, ignores));
    }
    return writes;
  }

  #one(verb: WriteVerb, offset: number, onConflict = false): readonly SqlWrite[] {
    const table = this.#path(offset);
    return table.length > 0 ? [{ verb, table, onConflict }] : [];
  }

  #inText(offset: number): readonly SqlWrite[] {
    const statement = this.#token(offset);
    return statement && statement.kind !== 'word' ? mysqlWritesOf(statement.text) : [];
  }

  #modifiers(): { readonly next: number; readonly ignores: boolean } {
    let next = 1;
    let ignores = false;
    for (; MODIFIER.test(this.#word(next)); next += 1) ignores ||= this.#word(next) === 'IGNORE';
    return { next, ignores };
  }

  /** In small letters: some servers tell names of tables apart by case, others do not. */
  #path(offset: number): Path {
    const path: string[] = [];
    for (let next = this.#spelled(offset) === '.' ? offset + 1 : offset; ; next += 2) {
      const token = this.#token(next);
      if (!token || (token.kind !== 'word' && token.kind !== 'name')) return path;
      if (token.kind === 'word' && NO_TABLE.test(token.text.toUpperCase())) return path;
      path.push(token.text.toLowerCase());
      if (this.#spelled(next + 1) !== '.') return path;
    }
  }

  /** How far away `word` is in the rest of the statement; -1 when it is not there. */
  #find(word: string): number {
    for (let next = 1; this.#token(next) && this.#spelled(next) !== ';'; next += 1)
      if (this.#word(next) === word) return next;
    return -1;
  }

  #token(offset: number): Token | undefined {
    return this.tokens[this.#at + offset];
  }

  #word(offset: number): string {
    const token = this.#token(offset);
    return token?.kind === 'word' ? token.text.toUpperCase() : '';
  }

  /** A word or a sign, and nothing that was quoted. */
  #spelled(offset: number): string {
    const token = this.#token(offset);
    return token?.kind === 'sign' ? token.text : this.#word(offset);
  }
}
