import { storedKey } from './stored-key.js';

describe('storedKey', () => {
  it('leaves keys as people wrote them', () => {
    for (const key of ['invoice:42', 'счёт/№ 7', `a'; DROP TABLE x; --`, '{%7B}', ' a ', '💶']) {
      expect(storedKey(key)).toBe(key);
    }
  });

  it('never stores two keys alike: NUL, backslashes, and long ones that look like the shortened form of another', () => {
    const long = 'x'.repeat(1_000);
    const keys = ['\0', '\\0', '\\\\0', '\\', '\\\\', `${long}1`, `${long}2`, '請'.repeat(1_000), long];
    const lookalikes = [...keys, ...keys.map(storedKey).filter((stored) => !keys.includes(stored))];
    expect(new Set(lookalikes.map(storedKey)).size).toBe(lookalikes.length);
  });

  it('stores what a PostgreSQL index can hold and no NUL, for keys of every length', () => {
    for (const character of ['x', 'é', '請', '💶', '\\', '\0']) {
      for (const length of [1, 127, 128, 129, 170, 171, 512, 513, 1_024]) {
        const stored = storedKey(character.repeat(length));
        expect(Buffer.byteLength(stored)).toBeLessThan(2_000);
        expect(stored).not.toContain('\0');
        expect(stored).not.toMatch(/\p{Surrogate}/u);
      }
    }
  });
});
