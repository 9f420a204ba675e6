import { BadGatewayException, ServiceUnavailableException } from '@nestjs/common';

import { toJson, type ChargeRequest } from './charge.js';

/** The gateway did not answer: whether it has moved the money is unknown. Ask again, under the same idempotency key. */
export class GatewayUnreachableError extends ServiceUnavailableException {
  override readonly name = 'GatewayUnreachableError';
}

/** The gateway has seen a newer owner of the invoice, and did nothing. */
export class StaleTokenError extends ServiceUnavailableException {
  override readonly name = 'StaleTokenError';
}

/** The gateway does not accept the request as it is, and did nothing. Asking again changes nothing. */
export class ChargeRejectedError extends BadGatewayException {
  override readonly name = 'ChargeRejectedError';
}

const ANSWER_WITHIN_MS = 5_000;

/** The payment gateway as the billing service sees it. */
export class PayoutGateway {
  constructor(private readonly address: string) {}

  /**
   * Resolves once the money has moved, now or at an earlier call with the same idempotency key.
   *
   * @throws {StaleTokenError} the caller's lock has gone to somebody else
   * @throws {GatewayUnreachableError} the outcome is unknown
   * @throws {ChargeRejectedError} the request makes no sense to the gateway
   */
  async send(charge: ChargeRequest): Promise<void> {
    const { status, text } = await this.#post('/charges', toJson(charge));
    if (status === 409) throw new StaleTokenError(`Invoice ${charge.invoiceId}: ${text}`);
    if (status >= 400 && status < 500) throw new ChargeRejectedError(`Invoice ${charge.invoiceId}: ${text}`);
    if (status >= 500) throw new GatewayUnreachableError(`The gateway answered ${status}.`);
  }

  async #post(path: string, body: string): Promise<{ status: number; text: string }> {
    try {
      const response = await fetch(`${this.address}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
        signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
      });
      return { status: response.status, text: await response.text() };
    } catch (cause) {
      throw new GatewayUnreachableError(
        'The gateway did not answer: whether the money has moved is unknown. Ask again, with the same idempotency key.',
        { cause },
      );
    }
  }
}
