export { type FenceRow, FenceRows } from './fence-rows.js';
export type { FenceClaim } from './fence-statements.js';
export { createFenceTable, FENCE_TABLE, fenceTable, fenceTableSql } from './fence-table.js';
