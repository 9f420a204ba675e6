import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';

import { InputError } from '../command-line/input-error.js';
import { CsvSyntaxError, splitRecords, type CsvRecord } from './csv-records.js';
import { COLUMNS, FieldError, parseInvoiceLine, type InvoiceLine } from './invoice-line.js';
import { positionIn } from './source-text.js';

/** Something in the text of the file cannot be used. */
class ContentError extends Error {
  constructor(
    readonly offset: number,
    message: string,
  ) {
    super(message);
  }
}

/**
 * The invoices of a CSV file (RFC 4180: quotes, CRLF; a byte order mark and blank lines are passed over), all of them
 * or none.
 *
 * @throws {InputError} `file:line:column: what is wrong`
 */
export function readInvoiceFile(file: string): InvoiceLine[] {
  const text = decode(file, readBytes(file));
  try {
    return parseInvoices(text);
  } catch (error) {
    if (error instanceof ContentError || error instanceof CsvSyntaxError) {
      throw inputError(file, text, error.offset, error.message);
    }
    throw error;
  }
}

function parseInvoices(text: string): InvoiceLine[] {
  const [header, ...records] = splitRecords(text);
  if (!header) throw new ContentError(0, 'the file is empty');
  if (!isDeepStrictEqual(header.fields, COLUMNS)) {
    throw new ContentError(header.start, `the header is missing; the first line must be ${COLUMNS.join()}`);
  }
  if (records.length === 0) throw new ContentError(text.length, 'there are no invoices behind the header');
  const offsetOf = new Map<string, number>();
  return records.map((record) => {
    const invoice = readRecord(record);
    const earlier = offsetOf.get(invoice.id);
    if (earlier !== undefined) {
      const { line } = positionIn(text, earlier);
      throw new ContentError(record.start, `id "${invoice.id}" was used before, in line ${line}`);
    }
    offsetOf.set(invoice.id, record.start);
    return invoice;
  });
}

function readRecord({ fields, offsets, end }: CsvRecord): InvoiceLine {
  if (fields.length !== COLUMNS.length) {
    const found = `${fields.length} column${fields.length === 1 ? '' : 's'}`;
    throw new ContentError(offsets[COLUMNS.length] ?? end, `${found} instead of ${COLUMNS.length}`);
  }
  try {
    return parseInvoiceLine(fields);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    throw new ContentError(offsets[COLUMNS.indexOf(error.column)] as number, error.message);
  }
}

function readBytes(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new InputError(`${file}:1:1: cannot be read: ${READ_PROBLEMS[code ?? ''] ?? code}`);
  }
}

const READ_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'permission denied',
};

/** A byte order mark at the start is dropped. */
function decode(file: string, bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const text = new TextDecoder('utf-8').decode(bytes);
    throw inputError(file, text, text.indexOf('\uFFFD'), 'this is not UTF-8 text');
  }
}

function inputError(file: string, text: string, offset: number, what: string): InputError {
  const { line, column } = positionIn(text, offset);
  return new InputError(`${file}:${line}:${column}: ${oneLine(what)}`);
}

/** Values from the file are quoted in messages, and may contain line ends. */
function oneLine(text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ');
}
