import { existsSync } from 'node:fs';

import { readOptions } from './demo-options.js';
import { InputError } from './input-error.js';
import { withoutPassword } from './store-choice.js';

describe('the options of the demo', () => {
  it('have defaults for a run that needs nothing', () => {
    const options = readOptions([]);
    expect(options).toMatchObject({
      workers: 4,
      store: { kind: 'embedded' },
      faults: 'all',
      unsafe: false,
      json: false,
      servePort: null,
    });
    const { input, seed } = options as Exclude<typeof options, 'help'>;
    expect(existsSync(input)).toBe(true);
    expect(Number.isSafeInteger(seed)).toBe(true);
  });

  it('are taken as given', () => {
    const args = '--input a.csv --workers 2 --faults kill --seed 9007199254740991 --unsafe --json'.split(' ');
    expect(readOptions(args)).toEqual({
      input: 'a.csv',
      workers: 2,
      store: { kind: 'embedded' },
      faults: 'kill',
      seed: 9007199254740991,
      unsafe: true,
      json: true,
      servePort: null,
    });
  });

  it.each([
    ['--serve', 3000],
    ['--serve --port 8080 --unsafe', 8080],
    ['--port 0 --serve --store sqlite:a.db --input a.csv', 0],
  ])('say with %s to take payments from port %d on', (args, servePort) => {
    expect(readOptions(args.split(' '))).toMatchObject({ servePort });
  });

  it.each([
    ['sqlite:a/b.db', { kind: 'sqlite', file: 'a/b.db' }],
    ['sqlite:///a/b.db', { kind: 'sqlite', file: '/a/b.db' }],
    ['sqlite:/a/b.db', { kind: 'sqlite', file: '/a/b.db' }],
    ['redis://127.0.0.1:6379', { kind: 'redis', url: 'redis://127.0.0.1:6379' }],
    ['redis://127.0.0.1:6379/2', { kind: 'redis', url: 'redis://127.0.0.1:6379/2' }],
    ['postgres://u:p@h:5/db', { kind: 'postgres', url: 'postgres://u:p@h:5/db' }],
    ['postgresql://u@h/db', { kind: 'postgres', url: 'postgresql://u@h/db' }],
    ['postgres+advisory://u:p@h:5/db', { kind: 'postgres+advisory', url: 'postgres://u:p@h:5/db' }],
    [
      'redlock:redis://a:1,redis://b:2,redis://c:3',
      { kind: 'redlock', urls: ['redis://a:1', 'redis://b:2', 'redis://c:3'] },
    ],
  ])('know the store %s', (store, choice) => {
    expect(readOptions(['--store', store])).toMatchObject({ store: choice });
  });

  it.each([
    [['--worker', '4'], "Unknown option '--worker'"],
    [['file.csv'], "Unexpected argument 'file.csv'"],
    [['--seed'], "Option '--seed <value>' argument missing"],
    [['--seed', '-1'], '--seed "-1" is not a whole number from 0'],
    [['--workers', '-1'], '--workers "-1" is not a whole number from 1 to 32'],
    [['--json', '-1'], "Option '--json' does not take an argument"],
    [['-1'], "Unknown option '-1'"],
    [['--json=yes'], "Option '--json' does not take an argument"],
    [['--workers', '0'], '--workers "0" is not a whole number from 1 to 32'],
    [['--workers', '33'], '--workers "33" is not a whole number'],
    [['--workers', '1.5'], '--workers "1.5" is not a whole number'],
    [['--workers', 'four'], '--workers "four" is not a whole number'],
    [['--workers', ''], '--workers "" is not a whole number'],
    [['--seed', '9007199254740993'], '--seed "9007199254740993" is not'],
    [['--seed', '0x10'], '--seed "0x10" is not'],
    [['--serve', '--port', '65535'], '--port "65535" is not a whole number from 0 to 65534'],
    [['--port', '3000'], '--port means nothing without --serve'],
    [['--serve', '--faults', 'all'], '--faults means nothing with --serve'],
    [['--serve', '--json'], '--json means nothing with --serve'],
    [['--faults', 'some'], '--faults "some" is unknown; write one of none, pause, kill, all'],
    [['--store', 'mysql://h/db'], '--store "mysql://h/db" is not a store; write sqlite:PATH'],
    [['--store', 'memory'], '--store "memory" is not a store'],
    [['--store', ''], '--store "" is not a store'],
    [['--store', 'sqlite:'], 'names no file'],
    [['--store', 'sqlite::memory:'], 'cannot be shared by several worker processes'],
    [['--store', 'redis://'], 'names no server'],
    [['--store', 'redis:6379'], 'names no server'],
    [['--store', 'redlock:redis://a:1,'], 'names no server'],
    [['--store', 'postgres+advisory:'], 'names no server'],
    [['--store', 'redis://h:99999'], 'names no server'],
    [['--store', 'redis://h/cache'], 'the database of a Redis server is a number'],
    [['--store', 'postgres://'], 'names no server'],
    [['--store', 'mongo://u:secret@h/db'], '--store "mongo://u:***@h/db" is not a store'],
  ])('refuse %j in one line', (args, message) => {
    const refused = (): unknown => readOptions(args);
    expect(refused).toThrow(InputError);
    expect(refused).toThrow(message);
    expect(refused).toThrow(/^[^\n]+$/);
  });

  it('explain themselves', () => {
    expect(readOptions(['--help'])).toBe('help');
    expect(readOptions(['-h', '--seed', 'x'])).toBe('help');
  });

  it('never show a password', () => {
    expect(withoutPassword('postgres://u:s3:cr@h:5/db?x=1')).toBe('postgres://u:***@h:5/db?x=1');
    expect(withoutPassword('redis://:s3cr@h:5')).toBe('redis://:***@h:5');
    expect(withoutPassword('postgres://u@h:5/db')).toBe('postgres://u@h:5/db');
  });
});
