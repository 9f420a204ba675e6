import { describeWithTypeOrm03 } from './typeorm-0.3.js';

jest.mock('typeorm', () => jest.requireActual<object>('typeorm-0.3'));

describeWithTypeOrm03(
  'transactions',
  'transactions-fenced',
  'transactions-isolation',
  'transaction-libraries',
);
