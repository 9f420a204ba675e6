import { answersOf, WHILE_NEVER_LOCKED, writePaths, type WritePath } from './write-paths.js';
import { shapes } from './write-paths-shapes.js';
import { ways } from './write-paths-ways.js';

const INTRODUCTION = `# Every way to write, and what becomes of it

Made from the list that \`test/typeorm/write-paths.spec.ts\` walks on each database: \`UPDATE_DOCS=1 npx jest write-paths-document\`
writes this page, and the tests fail where it is out of date.

The questions are: what happens to a write to an entity with \`@FencedBy\` under \`unfencedWrites: 'refuse'\`, the default,

- with **no token**: no lock that protects the row is held here;
- with the **current token**: its lock is held, and nobody was granted it since;
- with a **stale token**: somebody else was granted it since, and may not have written yet;
- with the token of **another key**: a lock is held, and it is that of another row.

\`UNFENCED_WRITE\` comes before the statement is sent, or from the database when a row is inserted under a key that was locked
before. \`FENCED_OUT\` is the database's answer: the statement changed nothing, and its transaction does not commit, whatever
happens to the error. Under \`unfenced('reason', work)\` every one of these ways passes, as
an event.
`;

const NOTES = `## What else there is to know

- A new row needs no lock while its key was never locked, and none where the database makes its key: nobody can have locked it.
- A \`save()\` that finds nothing to change sends no write. Under a lock the fence is asked all the same, so a stale owner gets
  \`FENCED_OUT\`; without a lock it passes, as nothing was written.
- Junction rows are protected by the lock of the side with \`@JoinTable()\` if it is fenced, else of the other side. Rows that go
  by the database's own \`ON DELETE CASCADE\` when the unfenced side is removed are not seen.
- \`ON DELETE\` and \`ON UPDATE\` rules by which the database itself would write a fenced table are refused at boot, except where
  parent and child have the same lock.
- \`readAndFence(Invoice, id)\` reads a row and writes the token onto it in one step; a stale owner gets \`FENCED_OUT\`.
- \`save(row, { data: { expectedLockToken } })\` shows a token that was handed over: an older and a later one get \`FENCED_OUT\`.
- Not seen: functions, triggers and views of the database, and connections that are not the DataSource's.
`;

const HEADER = ['', 'no token', 'current token', 'stale token', 'token of another key'];

export function writePathsDocument(): string {
  const groups = [...new Set(writePaths.map(({ group }) => group))];
  return [INTRODUCTION, ...groups.map(section), shapeSection(), NOTES].join('\n');
}

function section(group: string): string {
  const paths = writePaths.filter((path) => path.group === group);
  const advises = paths.some(({ instead }) => instead !== undefined);
  const header = advises ? [...HEADER, 'instead'] : HEADER;
  const rows = paths.map((path) => [...cells(path), ...(advises ? [path.instead ?? ''] : [])]);
  return `## ${group}\n\n${table([header, ...rows])}`;
}

function cells(path: WritePath): string[] {
  const answers = answersOf(path);
  const inOrder = [answers.withoutToken, answers.currentToken, answers.staleToken, answers.tokenOfAnotherKey];
  return [path.name.replace(/ \(C\d+\)$/, ''), ...inOrder.map(shown)];
}

function shown(answer: string): string {
  if (answer === WHILE_NEVER_LOCKED) return 'passes while its key was never locked, then `UNFENCED_WRITE`';
  return answer === 'passes' ? '**passes**' : `\`${answer}\``;
}

function shapeSection(): string {
  const list = (names: readonly { readonly name: string }[]) =>
    names.map(({ name }) => `- ${name}`).join('\n');
  return `## Entities of every shape

Each of these is written

${list(ways)}

under its lock, under that of another row, under none and by a stale owner, with TypeORM's names and with a naming strategy
(\`test/typeorm/write-paths-shapes.spec.ts\`). Only the first passes.

${list(shapes)}
`;
}

/** As the formatter would write it. */
function table(rows: readonly (readonly string[])[]): string {
  const [header = []] = rows;
  const widths = header.map((_, i) => Math.max(3, ...rows.map((row) => row[i]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |\n`;
  const [first = [], ...rest] = rows;
  return line(first) + line(widths.map((width) => '-'.repeat(width))) + rest.map(line).join('');
}
