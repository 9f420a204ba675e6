import { setTimeout as sleep } from 'node:timers/promises';

import { currentLease, LockService, type LockEvent } from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';
import { Locked } from './locked.decorator.js';
import { serveStandalone } from './locks-of-object.js';

let events: LockEvent[];
let locks: LockService;

beforeEach(() => {
  locks = new LockService({ stores: { default: memoryStore() } });
  events = [];
  locks.events.subscribe((event) => events.push(event));
  serveStandalone(locks);
});

afterEach(async () => {
  serveStandalone(undefined);
  await locks.close(0);
});

describe('@Locked and nested calls', () => {
  class Parent {
    readonly tokens: (number | undefined)[] = [];

    @Locked('invoice:<id>')
    async pay(id: string): Promise<void> {
      this.tokens.push(currentLease()?.token);
      await this.recalculate(id);
    }

    @Locked('invoice:<0>')
    async recalculate(_id: string): Promise<void> {
      this.tokens.push(currentLease()?.token);
      return Promise.resolve();
    }
  }

  class Child extends Parent {
    @Locked('invoice:<id>')
    override async pay(id: string): Promise<void> {
      this.tokens.push(currentLease()?.token);
      await super.pay(id);
    }
  }

  it('C137: joins the hold of the call chain: one token, one release, also through super', async () => {
    const child = new Child();
    await child.pay('42');
    expect(child.tokens).toHaveLength(3);
    expect(new Set(child.tokens).size).toBe(1);
    expect(events.filter(({ type }) => type === 'acquired')).toHaveLength(1);
    expect(events.filter(({ type }) => type === 'released')).toHaveLength(1);
  });

  it('C137: two parallel calls inside one hold take turns', async () => {
    let inside = 0;
    let most = 0;
    class Parallel {
      @Locked('invoice:1')
      async both(): Promise<void> {
        await Promise.all([this.one(), this.one()]);
      }

      @Locked('invoice:1')
      async one(): Promise<void> {
        most = Math.max(most, ++inside);
        await sleep(2);
        inside -= 1;
      }
    }
    await new Parallel().both();
    expect(most).toBe(1);
  });

  it('takes both locks of a method that is decorated twice', async () => {
    class Twice {
      @Locked('a:<id>')
      @Locked('b:<id>')
      async run(id: string): Promise<string> {
        return Promise.resolve(`${currentLease(`a:${id}`)?.key} ${currentLease(`b:${id}`)?.key}`);
      }
    }
    await expect(new Twice().run('1')).resolves.toBe('a:1 b:1');
  });
});
