import type { KeyWatch } from '../../core/index.js';
import { majorityOf } from './poll.js';
import type { RedlockNode } from './redlock-node.js';

/** The servers tell of one release within moments of each other; who asked after the first would find the others taken. */
const TOGETHER_MS = 1;

/** Hears of a release from every server, and is content while a majority can be heard. */
export function watchMajority(nodes: readonly RedlockNode[], key: string, wake: () => void): KeyWatch {
  let timer: NodeJS.Timeout | undefined;
  const ring = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined;
      wake();
    }, TOGETHER_MS);
  };
  const watches = nodes.map((node) => node.watch(key, ring));
  return {
    get hears() {
      return watches.filter(({ hears }) => hears).length >= majorityOf(nodes.length);
    },
    stop() {
      clearTimeout(timer);
      for (const watch of watches) watch.stop();
    },
  };
}
