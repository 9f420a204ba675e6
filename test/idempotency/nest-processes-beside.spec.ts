import { describeOn } from './each-store.js';
import { parallelRequestsGetOneAnswer } from './parallel-requests.js';

describeOn(
  ['mariadb', 'sqlite'],
  'two applications, 50 parallel requests with one key',
  parallelRequestsGetOneAnswer,
);
