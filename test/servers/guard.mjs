// Outlives the test process by a moment: when that ends, in whatever way, its pipe to us closes, and we end the servers
// that it has not stopped. A Jest worker survives the death of the main process, so we look at that one, too: its id is
// our argument. Each line on standard input is JSON: { folder, pid } to look after a server, { folder } to stop.
import { createInterface } from 'node:readline';
import { anyRuns, killTree, removeServerFolder } from './process-tree.mjs';

/** @type {Map<string, number | null>} */
const servers = new Map();

const input = createInterface({ input: process.stdin });
const mainProcess = Number(process.argv[2]);
const watch = setInterval(() => {
  if (mainProcess && !anyRuns([mainProcess])) input.close();
}, 250);

input
  .on('line', (line) => {
    const { folder, pid } = /** @type {{ folder: string, pid?: number | null }} */ (JSON.parse(line));
    if (pid === undefined) servers.delete(folder);
    else servers.set(folder, pid);
  })
  .on('close', () => {
    clearInterval(watch);
    process.stdin.destroy();
    removeWhenEnded([...servers.values()].flatMap((pid) => (pid === null ? [] : killTree(pid))));
  });

/** @param {number[]} killed */
function removeWhenEnded(killed) {
  if (anyRuns(killed)) return void setTimeout(removeWhenEnded, 20, killed);
  for (const folder of servers.keys()) removeServerFolder(folder);
}
