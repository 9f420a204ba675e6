import { redlockConforms } from './redlock-conforms.js';

redlockConforms(3, 0);
redlockConforms(5, 0);
