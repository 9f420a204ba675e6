import { describeOn } from './each-store.js';
import { raceForRecords } from './races.js';

describeOn(['memory', 'redis', 'postgres'], 'a race for a record', raceForRecords);
