import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { InputError } from '../../apps/demo-billing/src/command-line/input-error.js';
import { parseStoreChoice } from '../../apps/demo-billing/src/command-line/store-choice.js';
import { openBook } from '../../apps/demo-billing/src/run/open-book.js';
import { storageFor } from '../../apps/demo-billing/src/storage/storage-settings.js';

const NOBODY = '127.0.0.1:1';
const REFUSED = `connect ECONNREFUSED ${NOBODY}`;

describe('a store that cannot be reached', () => {
  const folder = mkdtempSync(join(tmpdir(), 'demo-spec-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  it.each([
    [`redis://:s3cret@${NOBODY}`, `Redis at redis://${NOBODY} gave no answer: ${REFUSED}`],
    [
      `redis+sentinel://:s3cret@${NOBODY}/billing`,
      `Redis at billing, watched by the sentinels ${NOBODY} gave`,
    ],
    [`redis+cluster:redis://:s3cret@${NOBODY}`, `Redis at the cluster of ${NOBODY} gave no answer: `],
    [`redlock:redis://:s3cret@${NOBODY},redis://127.0.0.1:2,redis://127.0.0.1:3`, `${NOBODY}: ${REFUSED}; `],
    [`postgres://u:s3cret@${NOBODY}/db`, REFUSED],
    [`postgres+advisory://u:s3cret@${NOBODY}/db`, REFUSED],
    [`mysql://u:s3cret@${NOBODY}/db`, REFUSED],
    [`mysql+getlock://u:s3cret@${NOBODY}/db`, REFUSED],
    [`etcd:http://u:s3cret@${NOBODY}`, `etcd at http://${NOBODY} gave no answer: ${REFUSED}`],
    [`consul:http://:s3cret@${NOBODY}`, REFUSED],
    [`zookeeper:u:s3cret@${NOBODY}`, `ZooKeeper at ${NOBODY} gave no answer: ${REFUSED}`],
  ])('is told of %s before a process is started, in one line and without the password', async (url, why) => {
    const choice = parseStoreChoice(url);
    const error: unknown = await openBook(storageFor(choice, folder, 'spec'), [], choice, 1_200).catch(
      (each: unknown) => each,
    );
    expect(error).toBeInstanceOf(InputError);
    const { message } = error as InputError;
    expect(message).toContain(`the store cannot be used: `);
    expect(message).toContain(why);
    expect(message).toMatch(/^[^\n]+; check --store, or leave it out$/);
    expect(message).not.toContain('s3cret');
  });
});
