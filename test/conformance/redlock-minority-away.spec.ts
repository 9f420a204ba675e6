import { redlockConforms } from './redlock-conforms.js';

redlockConforms(3, 1);
redlockConforms(5, 2);
