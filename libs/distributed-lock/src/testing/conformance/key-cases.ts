import assert from 'node:assert/strict';

import type { ConformanceCase } from './conformance-case.js';
import { claimOn, findTaken, giveBack, newKey, take, withStores } from './steps.js';

const THOUSAND_WIDE = '請'.repeat(950);

/** Endings that a store must tell apart: each follows one and the same beginning. */
const ENDINGS: readonly string[] = [
  'a',
  'A',
  'a ',
  ' a',
  'a\t',
  'a\n',
  'a\0',
  'a\0b',
  'é',
  'e\u0301', // the same letter in two code points
  'ß',
  'ss',
  'İ',
  'i',
  '💶',
  'счёт/№ 7',
  '"a"',
  "'a'",
  "a'; DROP TABLE lock_lease; --",
  '`a`',
  '\\a',
  '\\\\a',
  '\\0',
  '{a}',
  '{a',
  'a}',
  '{}',
  '%7Ba%7D',
  '%257Ba%257D',
  '%',
  '%%',
  '_',
  '*',
  '?',
  '[a]',
  '$1',
  ':a',
  'a:owner',
  'a:fence',
  'a}:owner',
  '..',
  '/',
  '0',
  '00',
  '1e3',
  '1000',
  'NaN',
  'null',
  `${'x'.repeat(950)}1`,
  `${'x'.repeat(950)}2`,
  `${THOUSAND_WIDE}1`,
  `${THOUSAND_WIDE}2`,
  `${'💶'.repeat(450)}1`,
  `${'💶'.repeat(450)}2`,
];

export const keyCases: readonly ConformanceCase[] = [
  {
    name: 'tells keys of any shape apart: quotes, braces, percent signs, spaces, case, alphabets, length',
    cases: ['C064'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const beginning = newKey();
        const claims = ENDINGS.map((ending) => claimOn(beginning + ending));
        for (const claim of claims) await take(one, claim);
        for (const { key } of claims) await findTaken(other, key);
        for (const claim of claims) {
          assert.equal(await giveBack(one, claim), 'released', JSON.stringify(claim.key));
        }
      }),
  },
];
