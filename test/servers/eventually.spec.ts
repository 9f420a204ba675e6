import { eventually, until } from './eventually.js';

describe('waiting for what a server comes to', () => {
  it('asks again after a no and after an answer that fails, and ends with the first yes', async () => {
    const answers = [() => false, () => Promise.reject(new Error('away')), () => true];
    let asked = 0;
    await until('it is there', () => (answers[(asked += 1) - 1] as () => boolean | Promise<boolean>)());
    expect(asked).toBe(3);
  });

  it('says what was waited for in vain, and why the last answer failed', async () => {
    const cause = new Error('away');
    await expect(until('it is there', () => Promise.reject(cause), 30)).rejects.toMatchObject({
      message: 'not within 30 ms: it is there',
      cause,
    });
    await expect(until('it is there', () => false, 30)).rejects.toMatchObject({ cause: undefined });
  });

  it('hands on what an expectation comes to, and throws what it threw last', async () => {
    let tries = 0;
    const third = (): number => {
      tries += 1;
      if (tries < 3) throw new Error(`try ${tries}`);
      return tries;
    };
    expect(await eventually(third)).toBe(3);
    tries = -1_000;
    const last = await eventually(third, 120).catch((error: Error) => error.message);
    expect(last).toBe(`try ${tries}`);
  });
});
