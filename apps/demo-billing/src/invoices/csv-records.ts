import { CsvError, parse, type Options } from 'csv-parse/sync';

/** One record of a CSV text. Offsets count characters (UTF-16 units) from the start of the text. */
export interface CsvRecord {
  readonly fields: readonly string[];
  /** Where each field begins, its quote included. */
  readonly offsets: readonly number[];
  readonly start: number;
  /** Behind the last field, before the line end. */
  readonly end: number;
}

/** The quotes of a record are wrong. */
export class CsvSyntaxError extends Error {
  override readonly name = 'CsvSyntaxError';

  constructor(
    readonly offset: number,
    message: string,
  ) {
    super(message);
  }
}

const OPTIONS: Options = {
  info: true,
  record_delimiter: ['\r\n', '\n', '\r'],
  relax_column_count: true, // whoever knows the columns counts them
  skip_empty_lines: true,
};

const QUOTE_PROBLEMS: Readonly<Record<string, string>> = {
  CSV_QUOTE_NOT_CLOSED: 'the quote that opens here is never closed',
  CSV_INVALID_CLOSING_QUOTE: 'behind the closing quote there must be a comma or the end of the line',
  INVALID_OPENING_QUOTE: 'a quote inside of a field needs quotes around the field, and must be doubled',
};

/** @throws {CsvSyntaxError} at the first field whose quotes are wrong */
export function splitRecords(text: string): CsvRecord[] {
  const bytes = Buffer.from(text);
  const locate = recordLocator(text, bytes);
  try {
    const parsed = parse(bytes, OPTIONS) as unknown as { record: string[]; info: { bytes: number } }[];
    return parsed.map(({ record, info }) => ({ fields: record, ...locate(info.bytes) }));
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const { bytes: endOfLastRecord, index } = error as CsvError & { bytes: number; index: number };
    locate(endOfLastRecord);
    const { offsets, start } = locate(bytes.length);
    throw new CsvSyntaxError(offsets[index] ?? start, QUOTE_PROBLEMS[error.code] ?? error.message);
  }
}

type Place = Pick<CsvRecord, 'offsets' | 'start' | 'end'>;

/** The parser counts bytes, and only the end of each record. Each call gives the place of the stretch up to `endByte`. */
function recordLocator(text: string, bytes: Buffer): (endByte: number) => Place {
  let fromByte = 0;
  let from = 0;
  return (endByte) => {
    const stretch = bytes.toString('utf8', fromByte, endByte);
    const start = from + (/^[\r\n]+/.exec(stretch)?.[0].length ?? 0);
    const end = from + stretch.replace(/[\r\n]+$/, '').length;
    fromByte = endByte;
    from += stretch.length;
    return { start, end, offsets: fieldOffsets(text, start, end) };
  };
}

/** The first field begins the record, the others stand behind commas outside of quotes. A doubled quote closes and opens. */
function fieldOffsets(text: string, start: number, end: number): number[] {
  const offsets = [start];
  let quoted = false;
  for (let i = start; i < end; i += 1) {
    if (text[i] === '"') quoted = !quoted;
    else if (text[i] === ',' && !quoted) offsets.push(i + 1);
  }
  return offsets;
}
