export { fenced, type FencedRepository } from './fenced.js';
export { readAndFence, type ReadAndFenceOptions } from './read-and-fence.js';
