import { describeOn } from './each-store.js';
import { parallelRequestsGetOneAnswer } from './parallel-requests.js';

describeOn(
  ['mariadb', 'mysql', 'sqlite'],
  'two applications, 50 parallel requests with one key',
  parallelRequestsGetOneAnswer,
);
