// npm test [-- jest options]: installs what is missing, fetches servers that the machine lacks, then runs all tests.
import { join } from 'node:path';
import { fetchMissingServers } from './fetch-servers.mjs';
import { becomeNode } from './pass-through.mjs';
import { installDependencies, REPOSITORY, requireNode, say } from './prepare.mjs';

requireNode();
installDependencies();
fetchMissingServers(say);
process.chdir(REPOSITORY);
becomeNode([join(REPOSITORY, 'node_modules/jest/bin/jest.js'), ...process.argv.slice(2)]);
