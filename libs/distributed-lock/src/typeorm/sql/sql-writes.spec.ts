import type { Dialect } from './dialect.js';
import { writesOf } from './sql-writes.js';

/** `VERB path`, with a `!` when there is a conflict clause. */
function written(sql: string, dialect: Dialect): string[] {
  return writesOf(dialect, sql).map(
    ({ verb, table, onConflict }) => `${verb} ${table.join('.')}${onConflict ? '!' : ''}`,
  );
}

const everywhere: Readonly<Record<string, readonly string[]>> = {
  'UPDATE invoice SET a = 1': ['UPDATE invoice'],
  'update "invoice" set a = 1': ['UPDATE invoice'],
  'UPDATE public.invoice AS i SET a = 1': ['UPDATE public.invoice'],
  'UPDATE"invoice"SET a=1': ['UPDATE invoice'],
  'UPDATE/**/invoice/* SET */SET a = 1': ['UPDATE invoice'],
  '-- UPDATE a\nDELETE FROM b': ['DELETE b'],
  'INSERT INTO "app"."invoice"("id") VALUES (1)': ['INSERT app.invoice'],
  'INSERT INTO invoice(id) SELECT id FROM other': ['INSERT invoice'],
  'INSERT INTO invoice VALUES (1) ON CONFLICT DO NOTHING': ['INSERT invoice!'],
  'INSERT INTO invoice VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 2': ['INSERT invoice!'],
  'INSERT INTO a VALUES (1); INSERT INTO b VALUES (1) ON CONFLICT DO NOTHING': ['INSERT a', 'INSERT b!'],
  'DELETE FROM invoice WHERE id = 1; UPDATE line SET a = 1;': ['DELETE invoice', 'UPDATE line'],
  'WITH gone AS (DELETE FROM invoice RETURNING *) SELECT * FROM gone': ['DELETE invoice'],
  'WITH x AS (SELECT 1) UPDATE invoice SET a = (SELECT * FROM x)': ['UPDATE invoice'],
  'MERGE INTO invoice USING x ON true WHEN MATCHED THEN UPDATE SET a = 1': ['MERGE invoice'],
  'EXPLAIN UPDATE invoice SET a = 1': ['UPDATE invoice'],
  'SELECT * FROM invoice': [],
  "SELECT 'UPDATE invoice SET a = 1'": [],
  "SELECT 'it''s; DELETE FROM invoice'": [],
  'SELECT "DELETE FROM invoice" FROM x': [],
  'SELECT * FROM x /* ; DELETE FROM invoice */': [],
  "SELECT replace(a, 'b', 'c') FROM invoice": [],
  'SELECT deleted, updated FROM invoice': [],
  'CREATE TABLE invoice (id int REFERENCES x ON DELETE CASCADE ON UPDATE CASCADE)': [],
  'CREATE TRIGGER t BEFORE UPDATE ON invoice FOR EACH ROW EXECUTE FUNCTION f()': [],
  'ALTER TABLE invoice ADD COLUMN a int': [],
  'DROP TABLE invoice': [],
  DELETE: [],
  'INSERT INTO': [],
  "SELECT 'never closed UPDATE invoice SET a = 1": [],
  '/* never closed UPDATE invoice SET a = 1': [],
};

const onPostgres: Readonly<Record<string, readonly string[]>> = {
  'UPDATE ONLY Invoice SET a = 1': ['UPDATE invoice'],
  'UPDATE "Invoice" SET a = 1': ['UPDATE Invoice'],
  'DELETE FROM ONLY invoice * WHERE true': ['DELETE invoice'],
  'TRUNCATE a, ONLY b, public.c': ['TRUNCATE a', 'TRUNCATE b', 'TRUNCATE public.c'],
  'TRUNCATE TABLE invoice CASCADE': ['TRUNCATE invoice'],
  'COPY invoice (id, a) FROM STDIN': ['COPY invoice'],
  'COPY invoice TO STDOUT': [],
  'COPY (SELECT * FROM invoice) TO STDOUT': [],
  'SELECT * FROM invoice FOR UPDATE': [],
  'SELECT * FROM invoice FOR NO KEY UPDATE OF invoice': [],
  'SELECT $$ DELETE FROM invoice $$': [],
  'SELECT $a$ $$ DELETE FROM invoice $a$, $1': [],
  'DO $$ BEGIN DELETE FROM invoice; END $$': ['DELETE invoice'],
  "SELECT E'it\\'s', 1; DELETE FROM invoice": ['DELETE invoice'],
  "SELECT E'\\\\'; DELETE FROM invoice": ['DELETE invoice'],
  '/* /* */ DELETE FROM a */ DELETE FROM b': ['DELETE b'],
  'DO $$ BEGIN IF true THEN UPDATE invoice SET a = 1; END IF; END $$': ['UPDATE invoice'],
  'GRANT UPDATE ON invoice TO x': [],
};

const onSqlite: Readonly<Record<string, readonly string[]>> = {
  'UPDATE Invoice SET a = 1': ['UPDATE invoice'],
  'UPDATE [Invoice] SET a = 1': ['UPDATE invoice'],
  'UPDATE `main`.`invoice` SET a = 1': ['UPDATE main.invoice'],
  "UPDATE 'invoice' SET a = 1": ['UPDATE invoice'],
  'UPDATE OR IGNORE invoice SET a = 1': ['UPDATE invoice!'],
  'INSERT OR REPLACE INTO invoice VALUES (1)': ['INSERT invoice!'],
  'REPLACE INTO invoice VALUES (1)': ['REPLACE invoice'],
  '/* /* */ DELETE FROM a': ['DELETE a'],
  "SELECT 'a\\'; DELETE FROM invoice": ['DELETE invoice'],
};

describe('writesOf', () => {
  for (const [dialect, examples] of [
    ['postgres', { ...everywhere, ...onPostgres }],
    ['sqlite', { ...everywhere, ...onSqlite }],
  ] as const) {
    for (const [sql, expected] of Object.entries(examples)) {
      it(`finds ${expected.length === 0 ? 'no write' : expected.join(', ')} on ${dialect} in: ${sql}`, () => {
        expect(written(sql, dialect)).toEqual(expected);
      });
    }
  }

  it('reads a statement of ten megabytes in one go', () => {
    const sql = `INSERT INTO invoice VALUES ('${"it''s ".repeat(1_700_000)}')`;
    expect(written(sql, 'postgres')).toEqual(['INSERT invoice']);
    expect(written(sql, 'sqlite')).toEqual(['INSERT invoice']);
  });
});
