import { followParent, ownSettings, tellParent } from '../processes/child-side.js';
import { GatewayServer } from './gateway-server.js';
import { Ledger } from './ledger.js';

/** What the gateway process is told at its start. */
export interface GatewaySettings {
  readonly ledgerFile: string;
  readonly loseAnswersOf: readonly string[];
}

/** What it says once it listens, or when it ends over an error. */
export type FromGateway =
  | { readonly kind: 'listening'; readonly address: string }
  | { readonly kind: 'unhandled'; readonly message: string };

const tell = (message: FromGateway): Promise<void> => tellParent(message);

followParent((error) => tell({ kind: 'unhandled', message: String(error) }));
const { ledgerFile, loseAnswersOf } = ownSettings<GatewaySettings>();
const gateway = new GatewayServer(new Ledger(ledgerFile), loseAnswersOf);
await tell({ kind: 'listening', address: await gateway.listen() });
