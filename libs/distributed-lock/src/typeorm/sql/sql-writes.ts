import type { Dialect } from './dialect.js';
import { mysqlWritesOf } from './mysql-writes.js';
import { scan, type Token } from './sql-scanner.js';
import { BEFORE_NO_WRITE, type SqlWrite, type WriteVerb } from './sql-write.js';

/** Words that lead to a write, and what must follow them. */
const VERBS: Readonly<Record<string, { verb: WriteVerb; then?: string }>> = {
  INSERT: { verb: 'INSERT', then: 'INTO' },
  REPLACE: { verb: 'REPLACE', then: 'INTO' },
  MERGE: { verb: 'MERGE', then: 'INTO' },
  DELETE: { verb: 'DELETE', then: 'FROM' },
  UPDATE: { verb: 'UPDATE' },
  TRUNCATE: { verb: 'TRUNCATE' },
  COPY: { verb: 'COPY' },
};
/** Finds the tables that `sql` writes: all its statements, with what stands in WITH and in the body of DO. */
export function writesOf(dialect: Dialect, sql: string): readonly SqlWrite[] {
  return dialect === 'mysql' ? mysqlWritesOf(sql) : new WriteReader(dialect, [...scan(dialect, sql)]).read();
}

class WriteReader {
  #at = 0;

  constructor(
    private readonly dialect: Exclude<Dialect, 'mysql'>,
    private readonly tokens: readonly Token[],
  ) {}

  read(): readonly SqlWrite[] {
    const writes: SqlWrite[] = [];
    for (this.#at = 0; this.#at < this.tokens.length; this.#at += 1) {
      const body = this.tokens[this.#at + (this.#isWord(1, 'LANGUAGE') ? 3 : 1)];
      if (this.#isWord(0, 'DO') && body?.kind === 'text') {
        writes.push(...this.#writesOfBody(body.text));
        continue;
      }
      writes.push(...this.#writesHere());
    }
    return writes;
  }

  /** What stands in texts may be executed: EXECUTE 'UPDATE …', format('DELETE …'). */
  #writesOfBody(body: string): readonly SqlWrite[] {
    const texts = [...scan(this.dialect, body)].filter(({ kind }) => kind === 'text');
    return [body, ...texts.map(({ text }) => text)].flatMap((sql) => writesOf(this.dialect, sql));
  }

  #writesHere(): readonly SqlWrite[] {
    const rule = VERBS[this.#word(0)];
    if (!rule || BEFORE_NO_WRITE.test(this.#word(-1))) return [];
    let next = 1;
    const orElse = this.#isWord(next, 'OR'); // INSERT OR REPLACE, UPDATE OR IGNORE
    if (orElse) next += 2;
    if (rule.then && !this.#isWord(next, rule.then)) return [];
    if (rule.then) next += 1;
    if (this.#isWord(next, 'SET')) return []; // ON CONFLICT DO UPDATE SET, WHEN MATCHED THEN UPDATE SET
    if (rule.verb === 'TRUNCATE' && this.#isWord(next, 'TABLE')) next += 1;
    const tables = this.#tablesAt(next, rule.verb === 'TRUNCATE');
    if (rule.verb === 'COPY' && !this.#comesBefore('FROM', 'TO')) return [];
    const onConflict = orElse || (rule.verb === 'INSERT' && this.#comesBefore('CONFLICT', ';'));
    return tables.map((table) => ({ verb: rule.verb, table, onConflict }));
  }

  #tablesAt(offset: number, several: boolean): readonly (readonly string[])[] {
    const tables: string[][] = [];
    let next = offset;
    do {
      if (this.#isWord(next, 'ONLY')) next += this.#isSign(next + 1, '(') ? 2 : 1;
      const path: string[] = [];
      for (;;) {
        const part = this.#name(next);
        if (part === null) break;
        path.push(part);
        next += 1;
        if (!this.#isSign(next, '.')) break;
        next += 1;
      }
      if (path.length > 0) tables.push(path);
      if (this.#isSign(next, '*') || this.#isSign(next, ')')) next += 1;
      next += 1;
    } while (several && this.#isSign(next - 1, ','));
    return tables;
  }

  /** True when `word` comes before the end of the statement, and before `other`. */
  #comesBefore(word: string, other: string): boolean {
    for (let next = 1; ; next += 1) {
      const token = this.tokens[this.#at + next];
      if (!token || (token.kind === 'sign' && token.text === ';') || this.#isWord(next, other)) return false;
      if (this.#isWord(next, word)) return true;
    }
  }

  /** A name as the database reads it: PostgreSQL folds what is not quoted, SQLite never looks at case. */
  #name(offset: number): string | null {
    const token = this.tokens[this.#at + offset];
    // SQLite takes a text for a name where it needs one.
    if (!token || token.kind === 'sign' || (token.kind === 'text' && this.dialect !== 'sqlite')) return null;
    return token.kind === 'word' || this.dialect === 'sqlite' ? token.text.toLowerCase() : token.text;
  }

  #word(offset: number): string {
    const token = this.tokens[this.#at + offset];
    return token?.kind === 'word' ? token.text.toUpperCase() : '';
  }

  #isWord(offset: number, word: string): boolean {
    return this.#word(offset) === word;
  }

  #isSign(offset: number, sign: string): boolean {
    const token = this.tokens[this.#at + offset];
    return token?.kind === 'sign' && token.text === sign;
  }
}
