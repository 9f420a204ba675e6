export { type FenceClaim, type FenceRow, FenceRows } from './fence-rows.js';
export { createFenceTable, fenceTable } from './fence-table.js';
