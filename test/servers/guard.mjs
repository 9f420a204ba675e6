// Outlives the test process by a moment: when that ends, in whatever way, its pipe to us closes, and we end the servers
// that it has not stopped. Each line on standard input is JSON: { folder, pid } to look after a server, { folder } to stop.
import { createInterface } from 'node:readline';
import { anyRuns, killTree, removeServerFolder } from './process-tree.mjs';

/** @type {Map<string, number | null>} */
const servers = new Map();

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const { folder, pid } = /** @type {{ folder: string, pid?: number | null }} */ (JSON.parse(line));
    if (pid === undefined) servers.delete(folder);
    else servers.set(folder, pid);
  })
  .on('close', () => {
    const killed = [...servers.values()].flatMap((pid) => (pid === null ? [] : killTree(pid)));
    removeWhenEnded(killed);
  });

/** @param {number[]} killed */
function removeWhenEnded(killed) {
  if (anyRuns(killed)) return void setTimeout(removeWhenEnded, 20, killed);
  for (const folder of servers.keys()) removeServerFolder(folder);
}
