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
  'DELETE FROM invoice WHERE id = 1; UPDATE line SET a = 1;': ['DELETE invoice', 'UPDATE line'],
  'WITH gone AS (DELETE FROM invoice RETURNING *) SELECT * FROM gone': ['DELETE invoice'],
  'WITH x AS (SELECT 1) UPDATE invoice SET a = (SELECT * FROM x)': ['UPDATE invoice'],
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

const exceptOnMysql: Readonly<Record<string, readonly string[]>> = {
  'INSERT INTO invoice VALUES (1) ON CONFLICT DO NOTHING': ['INSERT invoice!'],
  'INSERT INTO invoice VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 2': ['INSERT invoice!'],
  'INSERT INTO a VALUES (1); INSERT INTO b VALUES (1) ON CONFLICT DO NOTHING': ['INSERT a', 'INSERT b!'],
  'MERGE INTO invoice USING x ON true WHEN MATCHED THEN UPDATE SET a = 1': ['MERGE invoice'],
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
  'UPDATE ONLY (invoice) SET a = 1': ['UPDATE invoice'],
  'TRUNCATE a, ONLY (b), c': ['TRUNCATE a', 'TRUNCATE b', 'TRUNCATE c'],
  'DELETE FROM U&"invoice"': ['DELETE invoice'],
  '-- UPDATE a\rDELETE FROM b': ['DELETE b'],
  'DO LANGUAGE plpgsql $$ BEGIN DELETE FROM invoice; END $$': ['DELETE invoice'],
  "DO E'BEGIN DELETE FROM invoice; END'": ['DELETE invoice'],
  "DO $$ BEGIN EXECUTE format('DELETE FROM invoice'); END $$": ['DELETE invoice'],
};

const onMysql: Readonly<Record<string, readonly string[]>> = {
  'UPDATE `Invoice` SET a = 1': ['UPDATE invoice'],
  'UPDATE `app` . `invoice` SET a = 1': ['UPDATE app.invoice'],
  'UPDATE LOW_PRIORITY IGNORE invoice SET a = 1': ['UPDATE invoice!'],
  'UPDATE line, invoice i SET i.a = 1': ['UPDATE line', 'UPDATE invoice'],
  'UPDATE line l JOIN invoice i ON l.i = i.id SET i.a = 1': ['UPDATE line', 'UPDATE invoice'],
  'UPDATE (line, invoice) SET a = 1': ['UPDATE line', 'UPDATE invoice'],
  'UPDATE line STRAIGHT_JOIN (SELECT 1 FROM invoice) x SET a = 1': ['UPDATE line', 'UPDATE invoice'],
  'DELETE i FROM invoice AS i JOIN line USING (id) WHERE 1': [
    'DELETE i',
    'DELETE invoice',
    'DELETE line',
    'DELETE id',
  ],
  'DELETE FROM a, app.invoice USING a JOIN app.invoice WHERE b': [
    'DELETE a',
    'DELETE app.invoice',
    'DELETE a',
    'DELETE app.invoice',
  ],
  'DELETE app.invoice.* FROM app.invoice': ['DELETE app.invoice', 'DELETE app.invoice'],
  'DELETE LOW_PRIORITY QUICK IGNORE FROM invoice LIMIT 1': ['DELETE invoice!'],
  'INSERT invoice VALUES (1)': ['INSERT invoice'],
  'INSERT INTO invoice SET a = 1': ['INSERT invoice'],
  'INSERT IGNORE INTO invoice VALUES (1)': ['INSERT invoice!'],
  'INSERT HIGH_PRIORITY invoice VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a)': ['INSERT invoice!'],
  'REPLACE invoice VALUES (1)': ['REPLACE invoice'],
  'REPLACE DELAYED INTO invoice SET a = 1': ['REPLACE invoice'],
  "SELECT REPLACE(a, 'b', 'c'), INSERT('a', 1, 1, 'b'), TRUNCATE(1.5, 0) FROM invoice": [],
  'CREATE OR REPLACE TABLE invoice (id int)': [],
  'TRUNCATE TABLE invoice': ['TRUNCATE invoice'],
  "LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE invoice": ['LOAD invoice', 'REPLACE table'],
  'SELECT * FROM invoice FOR UPDATE': [],
  "PREPARE s FROM 'UPDATE invoice SET a = 1'": ['UPDATE invoice'],
  "EXECUTE IMMEDIATE 'DELETE FROM invoice'": ['DELETE invoice'],
  'BEGIN NOT ATOMIC DELETE FROM invoice; END': ['DELETE invoice'],
  'UPDATE 2024_invoice SET a = 1': ['UPDATE 2024_invoice'],
  "SELECT 'it\\'s; DELETE FROM invoice'": ['DELETE invoice'], // under NO_BACKSLASH_ESCAPES
  "SELECT 'a\\\\'; DELETE FROM invoice": ['DELETE invoice'],
  'SELECT "a\\"; DELETE FROM invoice -- "': ['DELETE invoice', 'DELETE invoice'], // under ANSI_QUOTES
  'SELECT 1 # DELETE FROM a\nFROM b': [],
  'SELECT 5--1, a FROM b': [],
  '--\nDELETE FROM invoice': ['DELETE invoice'],
  '/*! DELETE FROM invoice */': ['DELETE invoice'],
  '/*!50701 DELETE */ FROM invoice': ['DELETE invoice'],
  '/*M!100100 UPDATE */ invoice SET a = 2*/* DELETE FROM b */3': ['UPDATE invoice'],
  'SELECT /*+ MAX_EXECUTION_TIME(1) */ a FROM b': [],
  '/* /* */ DELETE FROM a': ['DELETE a'],
  'SET STATEMENT max_statement_time = 1 FOR UPDATE invoice SET a = 1': ['UPDATE invoice'],
  'SET STATEMENT max_statement_time = 1 FOR SELECT * FROM invoice FOR UPDATE': [],
  'UPDATE { OJ invoice LEFT OUTER JOIN line ON 1 } SET a = 1': ['UPDATE invoice', 'UPDATE line'],
  'UPDATE .invoice SET a = 1': ['UPDATE invoice'],
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
    ['postgres', { ...everywhere, ...exceptOnMysql, ...onPostgres }],
    ['sqlite', { ...everywhere, ...exceptOnMysql, ...onSqlite }],
    ['mysql', { ...everywhere, ...onMysql }],
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
    expect(written(sql, 'mysql')).toEqual(['INSERT invoice']);
  });
});
