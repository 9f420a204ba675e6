import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { InputError } from '../command-line/input-error.js';
import { readInvoiceFile } from './invoice-file.js';

const HEADER = 'id,tenant,customer,amount,currency,due_date\n';
const GOOD = 'A-1,acme,Ann,1.00,EUR,2025-01-31\n';

describe('the invoice file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'invoice-file-'));
  const file = join(folder, 'invoices.csv');
  afterAll(() => rmSync(folder, { recursive: true }));

  const read = (content: string | Buffer) => {
    writeFileSync(file, content);
    return readInvoiceFile(file);
  };
  const refusal = (content: string | Buffer): string => {
    try {
      read(content);
    } catch (error) {
      expect(error).toBeInstanceOf(InputError);
      return (error as Error).message.replace(file, 'file');
    }
    throw new Error('the file was accepted');
  };

  it('reads quotes, CRLF, a byte order mark, blank lines and a last line without an end', () => {
    const text =
      '\uFEFFid,tenant,customer,amount,currency,due_date\r\n' +
      'A-1,"Acme, Inc.","Ann ""B"" C",1.50,EUR,2025-01-31\r\n\r\n' +
      '"A-2",acme,Bob,2,JPY,2024-02-29';
    expect(read(text)).toEqual([
      {
        id: 'A-1',
        tenant: 'Acme, Inc.',
        customer: 'Ann "B" C',
        amountMinor: 150n,
        currency: 'EUR',
        dueDate: '2025-01-31',
      },
      {
        id: 'A-2',
        tenant: 'acme',
        customer: 'Bob',
        amountMinor: 2n,
        currency: 'JPY',
        dueDate: '2024-02-29',
      },
    ]);
  });

  it.each(['a:b', 'a/b', 'a b', '請求書', 'счёт-1', 'a%b', 'a<b>', '💶'])(
    'takes the id "%s" as it is',
    (id) => {
      expect(read(`${HEADER}${id},t,c,1,EUR,2025-01-01\n`)[0]?.id).toBe(id);
    },
  );

  it('reads a file with old Mac line ends, and one with mixed ones', () => {
    expect(read(HEADER.replace('\n', '\r') + GOOD.replace('\n', '\r'))).toHaveLength(1);
    expect(read(HEADER.replace('\n', '\r\n') + GOOD + GOOD.replace('A-1', 'A-2'))).toHaveLength(2);
  });

  it.each([
    ['an empty file', '', 'file:1:1: the file is empty'],
    ['blank lines only', '\n\n', 'file:1:1: the file is empty'],
    ['no invoices', HEADER, 'file:2:1: there are no invoices behind the header'],
    ['no header', GOOD, 'file:1:1: the header is missing'],
    ['another header', HEADER.replace('amount', 'sum') + GOOD, 'file:1:1: the header is missing'],
    ['a quoted half of a header', `"id,tenant",customer,amount,currency,due_date\n`, 'file:1:1: the header'],
    ['too few columns', `${HEADER}A-1,acme,Ann\n`, 'file:2:13: 3 columns instead of 6'],
    ['too many columns', `${HEADER}${GOOD}A-2,t,c,1,EUR,2025-01-01,x\n`, 'file:3:26: 7 columns instead of 6'],
    ['a quote that never closes', `${HEADER}${GOOD}A-2,"acme,Ann\n${GOOD}`, 'file:3:5: the quote that opens'],
    [
      'text behind a closing quote',
      `${HEADER}A-1,"acme"x,c,1,EUR,2025-01-01\n`,
      'file:2:5: behind the closing',
    ],
    ['a quote inside of a field', `${HEADER}A-1,ac"me,c,1,EUR,2025-01-01\n`, 'file:2:5: a quote inside'],
    ['an id that comes twice', `${HEADER}${GOOD}\n${GOOD}`, 'file:4:1: id "A-1" was used before, in line 2'],
    ['an empty id', `${HEADER},t,c,1,EUR,2025-01-01\n`, 'file:2:1: id is empty'],
    ['a blank id', `${HEADER}"  ",t,c,1,EUR,2025-01-01\n`, 'file:2:1: id is empty'],
    ['an id of two lines', `${HEADER}"a\nb",t,c,1,EUR,2025-01-01\n`, 'file:2:1: id contains a control'],
    [
      'an endless id',
      `${HEADER}${'i'.repeat(101)},t,c,1,EUR,2025-01-01\n`,
      'file:2:1: id is longer than 100',
    ],
    ['an empty tenant', `${HEADER}A-1,,c,1,EUR,2025-01-01\n`, 'file:2:5: tenant is empty'],
    [
      'a negative amount',
      `${HEADER}A-1,t,c,-1,EUR,2025-01-01\n`,
      'file:2:9: amount "-1" is not more than zero',
    ],
    ['an amount of zero', `${HEADER}A-1,t,c,0.00,EUR,2025-01-01\n`, 'file:2:9: amount "0.00" is not more'],
    ['a tenth of a yen', `${HEADER}A-1,t,c,1.0,JPY,2025-01-01\n`, 'file:2:9: amount "1.0" has too many'],
    ['an unknown currency', `${HEADER}A-1,t,c,1,ABC,2025-01-01\n`, 'file:2:11: currency "ABC" is not'],
    ['the 31st of April', `${HEADER}A-1,t,c,1,EUR,2025-04-31\n`, 'file:2:15: due_date "2025-04-31" is not'],
    ['another date format', `${HEADER}A-1,t,c,1,EUR,31.01.2025\n`, 'file:2:15: due_date "31.01.2025" is'],
    ['behind a quoted comma', `${HEADER}A-1,"a,b",c,x,EUR,2025-01-01\n`, 'file:2:13: amount "x" is not'],
    ['behind a quoted line end', `${HEADER}A-1,t,"c\r\né",x,EUR,2025-01-01\n`, 'file:3:4: amount "x" is not'],
    ['a zero byte', `${HEADER}A-1,t\0,c,1,EUR,2025-01-01\n`, 'file:2:5: tenant contains a zero byte'],
    ['in a CRLF file', `${HEADER}${GOOD}`.replaceAll('\n', '\r\n') + 'A-2,t\r\n', 'file:3:6: 2 columns'],
    ['bytes that are no text', Buffer.from(`${HEADER}A-\xff1,t\n`, 'latin1'), 'file:2:3: this is not UTF-8'],
    ['UTF-16', Buffer.from(`\uFEFF${HEADER}`, 'utf16le'), 'file:1:1: this is not UTF-8'],
  ])('refuses %s with file, line and column', (_, content, message) => {
    expect(refusal(content)).toContain(message);
  });

  it('never answers with more than one line', () => {
    expect(refusal(`${HEADER}A-1,t,c,"1\n2",EUR,2025-01-01\n`)).toBe(
      'file:2:9: amount "1 2" is not an amount; write digits with a point, such as 12.50',
    );
  });

  it('says why a file cannot be read', () => {
    expect(() => readInvoiceFile(join(folder, 'none.csv'))).toThrow(
      'none.csv:1:1: cannot be read: there is no',
    );
    expect(() => readInvoiceFile(folder)).toThrow(':1:1: cannot be read: it is a folder');
  });
});
