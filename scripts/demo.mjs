// npm run demo [-- options]: installs and builds what is missing, then runs the demo as if it had been started directly.
import { join } from 'node:path';
import { becomeNode } from './pass-through.mjs';
import { buildDemo, installDependencies, REPOSITORY, requireNode } from './prepare.mjs';

requireNode();
installDependencies();
buildDemo();
becomeNode([join(REPOSITORY, 'dist/apps/demo-billing/main.js'), ...process.argv.slice(2)]);
