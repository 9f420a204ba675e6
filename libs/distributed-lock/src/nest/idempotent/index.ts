export { idempotencyOf, openIdempotency, provideIdempotency } from './idempotency-of-app.js';
export { checkCallerIsKnown, checkIdempotent } from './idempotent-check.js';
export type { CallerOfRequest, IdempotencyModuleOptions, IdempotentOptions } from './idempotent-options.js';
export { isIdempotent, sitesBelow } from './idempotent-site.js';
export { Idempotent, onceOnly, type IdempotentDecorator } from './idempotent.decorator.js';
export { enteringBody } from './passage.js';
