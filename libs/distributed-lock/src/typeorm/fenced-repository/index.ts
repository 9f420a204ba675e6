export { fenced, type FencedRepository } from './fenced.js';
