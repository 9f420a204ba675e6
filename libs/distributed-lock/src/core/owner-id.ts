import { randomFillSync } from 'node:crypto';

const ID_BYTES = 16;
/** Asking the system for random bytes costs more than all the rest of an idle lock, so it is asked for many at once. */
const pool = Buffer.alloc(ID_BYTES * 256);
let used = pool.length;

/** 128 random bits in hex: unguessable, and new for every try. */
export function newOwnerId(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const id = pool.toString('hex', used, used + ID_BYTES);
  pool.fill(0, used, used + ID_BYTES); // an id that was handed out is not lying about any more
  used += ID_BYTES;
  return id;
}
