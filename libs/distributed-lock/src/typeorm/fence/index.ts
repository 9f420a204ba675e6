export { type FenceRow, FenceRows } from './fence-rows.js';
export type { FenceClaim } from './fence-statements.js';
export { createFenceTable, fenceTable } from './fence-table.js';
