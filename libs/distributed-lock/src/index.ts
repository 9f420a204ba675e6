export * from './core/index.js';
export { memoryStore, type MemoryStoreOptions } from './stores/memory/index.js';
