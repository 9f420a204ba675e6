import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { parseLedgerReport } from './charge.js';
import { GatewayServer } from './gateway-server.js';
import { Ledger } from './ledger.js';
import {
  ChargeRejectedError,
  GatewayUnreachableError,
  PayoutGateway,
  StaleTokenError,
} from './payout-gateway.js';

describe('the payment gateway', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-'));
  const ledger = new Ledger(join(folder, 'ledger.jsonl'));
  const server = new GatewayServer(ledger, ['lost']);
  let address: string;
  let gateway: PayoutGateway;

  beforeAll(async () => {
    address = await server.listen();
    gateway = new PayoutGateway(address);
  });
  afterAll(async () => {
    await server.close();
    ledger.close();
    rmSync(folder, { recursive: true });
  });

  const money = { amountMinor: 9007199254740993n, currency: 'USD' };
  const chargesOf = async (invoiceId: string) => {
    const report = parseLedgerReport(await (await fetch(`${address}/ledger`)).text());
    return report.charges.filter((charge) => charge.invoiceId === invoiceId);
  };

  it('charges the amount to the last cent', async () => {
    await gateway.send({ ...money, invoiceId: '請求書 1/a:b', fencingToken: 1, idempotencyKey: 'payout:1' });
    expect(await chargesOf('請求書 1/a:b')).toEqual([
      { ...money, invoiceId: '請求書 1/a:b', chargeId: expect.any(String) },
    ]);
  });

  it('refuses a former owner', async () => {
    await gateway.send({ ...money, invoiceId: 'A', fencingToken: 2, idempotencyKey: 'payout:A' });
    const late = gateway.send({ ...money, invoiceId: 'A', fencingToken: 1, idempotencyKey: 'payout:A' });
    await expect(late).rejects.toThrow(StaleTokenError);
  });

  it('loses the first answer on demand: the caller does not know, and a second call is not charged', async () => {
    const charge = { ...money, invoiceId: 'lost', fencingToken: 1, idempotencyKey: 'payout:lost' };
    await expect(gateway.send(charge)).rejects.toThrow(GatewayUnreachableError);
    await gateway.send(charge);
    expect(await chargesOf('lost')).toHaveLength(1);
  });

  it('says that it is away rather than that it refused', async () => {
    const nobody = new PayoutGateway('http://127.0.0.1:1');
    await expect(nobody.send({ ...money, invoiceId: 'B' })).rejects.toThrow(GatewayUnreachableError);
  });

  it.each([
    ['{}', 'invoiceId'],
    ['no json', 'JSON'],
    ['null', 'object'],
    ['{"invoiceId":"B","currency":"EUR","amountMinor":1}', 'amountMinor'],
    ['{"invoiceId":"B","currency":"EUR","amountMinor":"0"}', 'amountMinor'],
    ['{"invoiceId":"B","currency":"EUR","amountMinor":"1.5"}', 'amountMinor'],
    ['{"invoiceId":"B","currency":"EUR","amountMinor":"1","fencingToken":"7"}', 'fencingToken'],
    ['{"invoiceId":"B","currency":"EUR","amountMinor":"1","idempotencyKey":""}', 'idempotencyKey'],
  ])('does not guess what %s means', async (body, message) => {
    const response = await fetch(`${address}/charges`, { method: 'POST', body });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(message);
    expect(await chargesOf('B')).toEqual([]);
  });

  it('tells a key that names another payment from one that can be asked again', async () => {
    await gateway.send({ ...money, invoiceId: 'C', idempotencyKey: 'payout:C' });
    const other = gateway.send({ ...money, amountMinor: 1n, invoiceId: 'C', idempotencyKey: 'payout:C' });
    await expect(other).rejects.toThrow(ChargeRejectedError);
  });
});
