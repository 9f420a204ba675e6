import type { InvoiceLine } from '../invoices/invoice-line.js';

/** Lines to try, for a shell. */
export function invitation(invoice: InvoiceLine, replicas: readonly string[], gateway: string): string {
  const [first, other] = replicas.map((address) => payLine(invoice, address));
  return `Replicas of one application take payments, and the gateway keeps the ledger. Ctrl-C ends them.

Pay an invoice:
  ${first}
Ask again, at the other replica: the same receipt with "Idempotent-Replayed: true", and no second charge:
  ${other}
What was charged:
  curl ${gateway}/ledger
`;
}

function payLine({ id, tenant }: InvoiceLine, address: string): string {
  const url = `${address}/invoices/${quotable(id)}/pay`;
  return `curl -i -X POST '${url}' -H 'X-Tenant: ${quotable(tenant)}' -H 'Idempotency-Key: first-try'`;
}

/** Without spaces and quotes, for a URL, a header and a shell alike. */
function quotable(text: string): string {
  return encodeURIComponent(text).replaceAll("'", '%27');
}
