export { FreeKeys } from './free-keys.js';
export { noticeName, noticeOfRelease, PostgresListener } from './postgres-listener.js';
