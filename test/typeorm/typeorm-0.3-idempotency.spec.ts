import { describeWithTypeOrm03 } from './typeorm-0.3.js';

jest.mock('typeorm', () => jest.requireActual<object>('typeorm-0.3'));

describeWithTypeOrm03('../idempotency/transactional-commit', '../idempotency/transactional-whole');
