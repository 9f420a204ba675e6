import { Readable } from 'node:stream';

import {
  ClassSerializerInterceptor,
  Controller,
  Next,
  Post,
  Res,
  Sse,
  StreamableFile,
  UseInterceptors,
  type Type,
} from '@nestjs/common';
import { Exclude } from 'class-transformer';
import { Idempotent } from 'nestjs-distributed-lock';
import { of, type Observable } from 'rxjs';

import {
  Calls,
  describeOnEachAdapter,
  expectReplay,
  problemOf,
  refusalAtBoot,
  type AnyResponse,
} from './nest-http-adapters.js';

class Receipt {
  readonly id: string;
  @Exclude()
  readonly secret: string;

  constructor(id: string, secret: string) {
    this.id = id;
    this.secret = secret;
  }
}

interface BareResponse extends AnyResponse {
  /** Node's own response; with Express, the response is one itself. */
  readonly raw?: BareResponse;
  setHeader(name: string, value: string): void;
  end(text: string): void;
}

@Controller('answers')
@UseInterceptors(ClassSerializerInterceptor)
class Answers {
  constructor(private readonly calls: Calls) {}

  @Post('file')
  @Idempotent()
  async file(): Promise<StreamableFile> {
    return this.calls.run(new StreamableFile(Buffer.from('content'), { type: 'text/csv' }));
  }

  @Post('readable')
  @Idempotent()
  async readable(): Promise<unknown> {
    return this.calls.run(Readable.from([Buffer.from('con'), Buffer.from('tent')]));
  }

  @Post('web-stream')
  @Idempotent()
  async webStream(): Promise<unknown> {
    return this.calls.run(new Blob(['content']).stream());
  }

  @Post('web-response')
  @Idempotent()
  async webResponse(): Promise<unknown> {
    return this.calls.run(new Response('content', { status: 202 }));
  }

  @Post('large')
  @Idempotent({ maxResultBytes: 1_000 })
  async large(): Promise<string> {
    return this.calls.run('content'.repeat(200));
  }

  @Post('unknown-class')
  @Idempotent()
  async unknownClass(): Promise<Receipt> {
    return this.calls.run(new Receipt('content', 's3cret'));
  }

  @Post('inside')
  @Idempotent()
  async inside(): Promise<object> {
    return this.calls.run({ content: [new Receipt('1', 's3cret')] });
  }

  @Post('past-nest')
  @Idempotent()
  async pastNest(@Res({ passthrough: true }) response: BareResponse): Promise<string> {
    (response.raw ?? response).end('content');
    return this.calls.run('more');
  }

  @Post('by-response')
  @Idempotent()
  async byResponse(@Res({ passthrough: true }) response: AnyResponse): Promise<void> {
    await this.calls.run(undefined);
    response.status(202).send('content');
  }

  @Post('known-class')
  @Idempotent({ classes: { Receipt: { type: Receipt } } })
  async knownClass(): Promise<object> {
    return this.calls.run({ list: [new Receipt('1', 's3cret')] });
  }

  @Post('events')
  @Idempotent()
  async events(): Promise<Observable<string>> {
    return this.calls.run(of('content'));
  }

  @Post('generator')
  @Idempotent()
  async generator(): Promise<unknown> {
    return this.calls.run(generated());
  }
}

async function* generated(): AsyncGenerator<string> {
  yield 'content';
  await Promise.resolve();
}

const key = 'k1';

describeOnEachAdapter('C122: an answer that cannot be kept', { controllers: [Answers] }, (app) => {
  it.each([
    ['file', 201],
    ['readable', 201],
    ['web-stream', 201],
    ['web-response', 202],
    ['large', 201],
    ['unknown-class', 201],
    ['inside', 201],
    ['past-nest', 201],
    ['by-response', 202],
  ])('is sent once, and a repetition is told that it was done: %s', async (path, status) => {
    const [first, second] = await app().twice(`/answers/${path}`, { key });
    expect(first).toMatchObject({ status, text: expect.stringContaining('content') });
    expect(problemOf(second)).toEqual({
      sent: 500,
      type: 'about:blank',
      title: 'Internal Server Error',
      status: 500,
      detail: expect.stringMatching(
        /done by an earlier request .*answer was not kept\. Nothing was repeated/,
      ),
      code: 'IDEMPOTENCY_RESULT_OMITTED',
      outcome: 'committed',
    });
    for (const { text } of [first, second]) expect(text).not.toContain('s3cret');
    expect(app().calls.count).toBe(1);
  });

  it('may be an instance whose class is registered: serializers then hide the same of both', async () => {
    const [first, second] = await app().twice('/answers/known-class', { key });
    expect(first).toMatchObject({ status: 201, text: '{"list":[{"id":"1"}]}' });
    expect(second).toMatchObject({ status: 201, text: '{"list":[{"id":"1"}]}' });
    expectReplay(second);
  });

  it.each(['events', 'generator'])('is refused when it has yet to happen: %s', async (path) => {
    const first = await app().send(`/answers/${path}`, { key });
    expect(problemOf(first)).toMatchObject({ sent: 503, code: 'LOCK_CONFIG_INVALID', outcome: 'unknown' });
    expect(first.text).not.toContain('content');
  });
});

@Controller()
class WithResponse {
  @Post()
  @Idempotent()
  async run(@Res() _response: unknown): Promise<void> {}
}

@Controller()
class WithNext {
  @Idempotent()
  @Post()
  async run(@Next() _next: unknown): Promise<void> {}
}

@Controller()
class Events {
  @Sse()
  @Idempotent()
  async run(): Promise<never> {
    return Promise.reject(new Error('never called'));
  }
}

describe.each(['Express', 'Fastify'] as const)('C122: at boot on %s, @Idempotent()', (adapter) => {
  it.each<[string, Type, RegExp]>([
    ['@Res()', WithResponse, /WithResponse\.run: .*passthrough: true/],
    ['@Next()', WithNext, /WithNext\.run: .*Return it/],
    ['@Sse()', Events, /Events\.run: a stream of events/],
  ])('is refused with %s, each time', async (_what, controller, why) => {
    for (let turn = 0; turn < 2; turn += 1)
      expect(await refusalAtBoot(adapter, { controllers: [controller] })).toMatchObject({
        message: expect.stringMatching(why),
      });
  });
});
