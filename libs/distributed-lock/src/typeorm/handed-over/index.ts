export { TokenAcceptance } from './token-acceptance.js';
export { withExpectedLockToken } from './with-expected-lock-token.js';
