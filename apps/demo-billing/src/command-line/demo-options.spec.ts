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
    ['redis://127.0.0.1:6379', { kind: 'redis', place: { url: 'redis://127.0.0.1:6379' } }],
    ['rediss://127.0.0.1:6379/2', { kind: 'redis', place: { url: 'rediss://127.0.0.1:6379/2' } }],
    [
      'redis+sentinel://:pw@a:1,b,[::1]:3/billing',
      {
        kind: 'redis',
        place: {
          sentinels: [
            { host: 'a', port: 1 },
            { host: 'b', port: 26379 },
            { host: '::1', port: 3 },
          ],
          name: 'billing',
          access: { password: 'pw' },
        },
      },
    ],
    [
      'redis+cluster:redis://a:1,redis://b',
      {
        kind: 'redis',
        place: {
          cluster: [
            { host: 'a', port: 1 },
            { host: 'b', port: 6379 },
          ],
          access: {},
        },
      },
    ],
    [
      'redis+cluster:rediss://u:p%40w@a:1',
      {
        kind: 'redis',
        place: { cluster: [{ host: 'a', port: 1 }], access: { username: 'u', password: 'p@w', tls: {} } },
      },
    ],
    [
      'redlock:redis://a:1,redis://b:2,redis://c:3',
      { kind: 'redlock', urls: ['redis://a:1', 'redis://b:2', 'redis://c:3'] },
    ],
    ['postgres://u:p@h:5/db', { kind: 'postgres', url: 'postgres://u:p@h:5/db', sessionLocks: false }],
    ['postgresql://u@h/db', { kind: 'postgres', url: 'postgres://u@h/db', sessionLocks: false }],
    ['postgres+advisory://u@h:5/db', { kind: 'postgres', url: 'postgres://u@h:5/db', sessionLocks: true }],
    ['mysql://u:p@h:5/db', { kind: 'mysql', url: 'mysql://u:p@h:5/db', sessionLocks: false }],
    ['mariadb://u@h/db', { kind: 'mysql', url: 'mysql://u@h/db', sessionLocks: false }],
    ['mysql+getlock://u@h:5/db', { kind: 'mysql', url: 'mysql://u@h:5/db', sessionLocks: true }],
    ['etcd://h', { kind: 'etcd', hosts: ['http://h:2379'] }],
    ['etcd:http://a:1,http://b:2', { kind: 'etcd', hosts: ['http://a:1', 'http://b:2'] }],
    [
      'etcd:https://u:50%@[::1]:1',
      { kind: 'etcd', hosts: ['https://[::1]:1'], login: { username: 'u', password: '50%' } },
    ],
    ['consul://h', { kind: 'consul', url: 'http://h:8500' }],
    ['consul:https://:t0ken@h:1', { kind: 'consul', url: 'https://h:1', token: 't0ken' }],
    ['zookeeper:a:1,b', { kind: 'zookeeper', hosts: ['a:1', 'b:2181'] }],
    [
      'zookeeper://u:p@a:1,u:p@[::1]:2',
      { kind: 'zookeeper', hosts: ['a:1', '[::1]:2'], login: { username: 'u', password: 'p' } },
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
    [['--store', 'oracle://h/db'], '--store "oracle://h/db" is not a store; write sqlite:PATH'],
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
    [
      ['--store', 'redlock:http://a:1,redis://b:1,redis://c:1'],
      'names no Redis; write redlock:redis://a:port,',
    ],
    [
      ['--store', 'redis+sentinel://a:1,b:2'],
      'does not say what the sentinels call the master; write redis+s',
    ],
    [['--store', 'redis+sentinel:///billing'], 'names no servers that can be read; write redis+sentinel://h'],
    [['--store', 'redis+cluster:'], 'names no servers that can be read; write redis+cluster:redis://'],
    [
      ['--store', 'redis+cluster:http://a'],
      'names no servers that can be read; write redis+cluster:redis://',
    ],
    [['--store', 'redis+cluster:redis://a/2'], 'names no servers that can be read; write redis+cluster:'],
    [['--store', 'mysql://'], 'names no server; write mysql://user:password@host:port/database'],
    [['--store', 'mysql+getlock:h'], 'names no server; write mysql+getlock://user:password@host:port/'],
    [['--store', 'etcd:'], '--store "etcd:" names no servers that can be read; write etcd:http://host:port,'],
    [['--store', 'etcd:ftp://a:1'], 'names no servers that can be read; write etcd:http://host:port,'],
    [['--store', 'consul:http://'], 'names no servers that can be read; write consul:http://host:port'],
    [['--store', 'consul:a:1,b:1'], 'names several agents; write consul:http://host:port'],
    [['--store', 'zookeeper:a:1,,b:1'], 'names no servers that can be read; write zookeeper:host:port,'],
    [['--store', 'zookeeper:a:99999'], 'names no servers that can be read; write zookeeper:host:port,'],
    [['--store', 'mongo://u:secret@h/db'], '--store "mongo://u:***@h/db" is not a store'],
    [['--store', 'zookeeper:u:secret@h:x'], '--store "zookeeper:u:***@h:x" names no servers'],
    [['--store', 'redlock:redis://u:secret@h:1,x'], '--store "redlock:redis://u:***@h:1,x" names no server'],
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

  it.each([
    ['postgres://u:s3:cr@h:5/db?x=1', 'postgres://u:***@h:5/db?x=1'],
    ['postgres://u:s3/cr@h:5/db', 'postgres://u:***@h:5/db'],
    ['mysql+getlock://u:s3@cr@h/db', 'mysql+getlock://u:***@h/db'],
    ['redis://:s3cr@h:5', 'redis://:***@h:5'],
    ['postgres://u@h:5/db', 'postgres://u@h:5/db'],
    ['postgres://h/db?user=u&password=s3cr&x=1', 'postgres://h/db?user=u&password=***&x=1'],
    ['etcd:http://u:s3cr@a:1,http://u:s3cr@b:2', 'etcd:http://u:***@b:2'],
    ['redlock:redis://a:1,redis://:s3cr@b:2', 'redlock:redis://a:***@b:2'],
    ['zookeeper:u:s3cr@a:1', 'zookeeper:u:***@a:1'],
    ['redis+sentinel://:s3,cr@a:1,b:2/name', 'redis+sentinel://:***@a:1,b:2/name'],
  ])('show of %s no password', (text, shown) => {
    expect(withoutPassword(text)).toBe(shown);
  });
});
