/** A place in a text file, counted from 1. `column` counts characters, as editors do. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

const LINE_END = /\r\n|\n|\r/;

/** Where an offset lies for somebody who looks at the text in an editor. */
export function positionIn(text: string, offset: number): Position {
  const lines = text.slice(0, offset).split(LINE_END);
  return { line: lines.length, column: [...(lines.at(-1) as string)].length + 1 };
}
