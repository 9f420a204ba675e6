import { describeOn } from './each-store.js';
import { raceForRecords } from './races.js';

describeOn(['sqlite', 'mariadb', 'mysql'], 'a race for a record', raceForRecords);
