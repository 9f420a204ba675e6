import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

import type { StorePlace } from './each-store.js';
import type { AppNews } from './http-app-process.js';

const REQUESTS = 50;
const KEYS = 4;

/** An application in a process of its own. */
class AppProcess {
  readonly ran: string[] = [];
  #port = 0;
  readonly #child: ChildProcess;
  readonly #listening: Promise<void>;

  constructor(place: string) {
    const runner = join(__dirname, '../conformance/run-typescript.mjs');
    const args = [runner, join(__dirname, 'http-app-process.ts'), place];
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#listening = new Promise((resolve, reject) => {
      this.#child.once('exit', (code) => reject(new Error(`the application ended with ${String(code)}`)));
      this.#child.on('message', (news: AppNews) => {
        if (news.type === 'ran') return this.ran.push(news.id);
        if (news.type === 'heard') return;
        this.#port = news.port;
        return resolve();
      });
    });
  }

  async post(path: string, key: string): Promise<Answer> {
    await this.#listening;
    const url = `http://127.0.0.1:${this.#port}/payments/${path}`;
    const response = await fetch(url, { method: 'POST', headers: { 'Idempotency-Key': key } });
    const { status, headers } = response;
    const replayed = headers.get('idempotent-replayed') === 'true';
    return { status, text: await response.text(), replayed, retryAfter: headers.get('retry-after') };
  }

  /** Resolves when everything that it told before has arrived here, which answers to requests may overtake. */
  async allTold(): Promise<void> {
    const heard = new Promise<void>((resolve) => {
      const listen = (news: AppNews): void => {
        if (news.type !== 'heard') return;
        this.#child.off('message', listen);
        resolve();
      };
      this.#child.on('message', listen);
    });
    this.#child.send('tell');
    await heard;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.disconnect();
    await ended;
  }
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly replayed: boolean;
  readonly retryAfter: string | null;
}

/** Two applications on one store, in processes of their own, and 50 requests with one key at once. */
export function parallelRequestsGetOneAnswer(start: () => Promise<StorePlace>): void {
  let place: StorePlace;
  let apps: AppProcess[] = [];

  beforeAll(async () => {
    place = await start();
    apps = [1, 2].map(() => new AppProcess(place.place as string));
    await Promise.all(apps.map((app) => app.post('bare/warm', 'warm')));
  });

  afterAll(async () => {
    await Promise.all(apps.map((app) => app.stop()));
    await place.stop();
  });

  const storm = async (path: string): Promise<Answer[]> => {
    const requests = Array.from({ length: REQUESTS }, (_, turn) =>
      (apps[turn % 2] as AppProcess).post(path, `key of ${path}`),
    );
    const answers = await Promise.all(requests);
    await Promise.all(apps.map((app) => app.allTold()));
    return answers;
  };
  const runsOf = (id: string): number => apps.flatMap(({ ran }) => ran).filter((ran) => ran === id).length;

  it('would run as often as they are sent, without @Idempotent', async () => {
    await storm('bare/0');
    expect(runsOf('0')).toBe(REQUESTS);
  });

  it.each(Array.from({ length: KEYS }, (_, nr) => `w${nr}`))(
    'C059: run once, and give 49 equal replays when they wait (%s)',
    async (id) => {
      const answers = await storm(`wait/${id}`);
      expect(runsOf(id)).toBe(1);
      expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
      expect(answers[0]?.status).toBe(201);
      expect(answers.filter(({ replayed }) => replayed)).toHaveLength(REQUESTS - 1);
    },
  );

  it.each(Array.from({ length: KEYS }, (_, nr) => `r${nr}`))(
    'C059: run once, and give equal replays or 409 with Retry-After, and nothing else (%s)',
    async (id) => {
      const answers = await storm(`refuse/${id}`);
      expect(runsOf(id)).toBe(1);
      const done = answers.filter(({ status }) => status === 201);
      const refused = answers.filter(({ status, retryAfter }) => status === 409 && Number(retryAfter) >= 1);
      expect(done.length + refused.length).toBe(REQUESTS);
      expect(new Set(done.map(({ text }) => text)).size).toBe(1);
      expect(done.filter(({ replayed }) => !replayed)).toHaveLength(1);
    },
  );
}
