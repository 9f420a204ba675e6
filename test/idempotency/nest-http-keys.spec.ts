import { Controller, Post } from '@nestjs/common';
import { Idempotent } from 'nestjs-distributed-lock';

import { Calls, describeOnEachAdapter, expectReplay, problemOf, type Answer } from './nest-http-adapters.js';

@Controller('payments')
class Payments {
  constructor(private readonly calls: Calls) {}

  @Post()
  @Idempotent()
  async pay(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }
}

describeOnEachAdapter('the header Idempotency-Key', { controllers: [Payments] }, (app) => {
  const pay = (key?: string | string[]): Promise<Answer> => app().send('/payments', { key });

  it.each([
    ['with and without quotes', 'k1', '"k1"'],
    ['with and without spaces around it', 'k1', '  k1 '],
  ])('is the same key %s', async (_what, one, other) => {
    await pay(one);
    const second = await pay(other);
    expectReplay(second);
    expect(second.text).toBe('{"run":1}');
    expect(app().calls.count).toBe(1);
  });

  it.each([
    ['in another case', 'K1'],
    ['with a space at its end, inside of quotes', '"k1 "'],
    ['with a letter more', 'k11'],
  ])('is another key %s', async (_what, other) => {
    await pay('k1');
    expect((await pay(other)).text).toBe('{"run":2}');
  });

  it.each([
    ['255 characters', 'x'.repeat(255)],
    ['255 characters in quotes', `"${'x'.repeat(255)}"`],
    ['spaces and marks inside', "a b;c=d:e/f?{g}~!#$%&'()*+-.<=>@[]^_`|"],
  ])('may have %s', async (_what, key) => {
    expect(await pay(key)).toMatchObject({ status: 201 });
    expectReplay(await pay(key));
  });

  it.each([
    ['none', undefined],
    ['an empty one', ''],
    ['one of spaces', '   '],
    ['empty quotes', '""'],
    ['one of 256 bytes', 'x'.repeat(256)],
    ['one of 256 bytes in quotes', `"${'x'.repeat(256)}"`],
    ['a quote inside', 'a"b'],
    ['a quote inside of quotes', '"a"b"'],
    ['half a quote', '"ab'],
    ['parameters behind it', '"ab";v=1'],
    ['a comma', 'a,b'],
    ['a backslash', 'a\\b'],
    ['a backslash that escapes a quote', '"a\\"b"'],
    ['a tab', 'a\tb'],
    ['a letter beyond ASCII', 'schl\u00fcssel'],
    ['a space that is none of ASCII, at its end', 'k1\u00a0'],
    ['two headers', ['a', 'b']],
    ['two headers that are equal', ['a', 'a']],
    ['two headers, one of them empty', ['', 'a']],
  ])('is answered 400 with a sentence for %s, and nothing runs', async (_what, key) => {
    expect(problemOf(await pay(key))).toEqual({
      sent: 400,
      type: 'about:blank',
      title: 'Bad Request',
      status: 400,
      detail: expect.stringMatching(/one Idempotency-Key header: 1 to 255 .*Nothing was done\./),
      code: 'IDEMPOTENCY_KEY_INVALID',
      outcome: 'not-started',
    });
    expect(app().calls.count).toBe(0);
  });

  it.each([
    ['two spellings of the name', ['Idempotency-Key: a', 'idempotency-key: a']],
    ['bytes of UTF-8', ['Idempotency-Key: schl\u00c3\u00bcssel']],
    ['a lone high byte', ['Idempotency-Key: \u00ff']],
  ])('is answered 400 with a sentence for %s on the wire', async (_what, lines) => {
    const answer = await app().sendRaw(requestWith(lines));
    expect(answer).toMatch(/^HTTP\/1\.1 400 [^]*application\/problem\+json[^]*IDEMPOTENCY_KEY_INVALID/);
    expect(app().calls.count).toBe(0);
  });

  it('is missing, too, where one method of the application calls the handler', async () => {
    await expect(app().nest.get(Payments).pay()).rejects.toThrow(/Payments\.pay .*called without a request/);
    expect(app().calls.count).toBe(0);
  });

  it.each([
    ['a control character', 'a\u0001b'],
    ['NUL', 'a\u0000b'],
    ['DEL', 'a\u007fb'],
    ['a line feed', 'a\nb'],
  ])('reaches no handler with %s: HTTP itself has no such header', async (_what, key) => {
    expect(await app().sendRaw(requestWith([`Idempotency-Key: ${key}`]))).toMatch(/^HTTP\/1\.1 400 /);
    expect(app().calls.count).toBe(0);
  });
});

function requestWith(lines: readonly string[]): string[] {
  return ['POST /payments HTTP/1.1', 'Host: x', ...lines, 'Content-Length: 0', 'Connection: close'];
}
