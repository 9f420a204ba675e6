/** What `pattern`, which is sticky, matches at this place; empty when nothing. */
export function matchAt(pattern: RegExp, sql: string, at: number): string {
  pattern.lastIndex = at;
  return pattern.exec(sql)?.[0] ?? '';
}

/** Where the next `end` ends, or the text. */
export function after(sql: string, end: string, from: number): number {
  const found = sql.indexOf(end, from);
  return found < 0 ? sql.length : found + end.length;
}

/** A doubled quote inside stands for itself. */
export function endOfQuoted(sql: string, start: number, quote: string): number {
  let end = after(sql, quote, start + 1);
  while (sql[end] === quote) end = after(sql, quote, end + 1);
  return end;
}

/** As {@link endOfQuoted}, where a backslash takes the next character with it. */
export function endOfEscaped(sql: string, start: number, quote: string): number {
  for (let at = start + 1; at < sql.length; at += 1) {
    if (sql[at] === '\\') at += 1;
    else if (sql[at] === quote && sql[at + 1] === quote) at += 1;
    else if (sql[at] === quote) return at + 1;
  }
  return sql.length;
}

export function unquoted(quoted: string, quote: string): string {
  return quoted.slice(1, quoted.endsWith(quote) ? -1 : undefined).replaceAll(quote + quote, quote);
}
