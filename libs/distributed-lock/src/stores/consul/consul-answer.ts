/** What Consul, or something in front of it, refused. */
export class ConsulError extends Error {
  override readonly name = 'ConsulError';

  constructor(
    message: string,
    /** Of HTTP; undefined where something else than Consul answered. */
    readonly status: number | undefined,
  ) {
    super(message);
  }
}

/** One answer over HTTP, whatever it says. */
export interface ConsulAnswer {
  readonly status: number;
  readonly body: string;
  /** The index that a blocking query goes on from; null where the answer has none. */
  readonly index: number | null;
}

/** The bounds of sessions, as the servers are configured. */
export interface TtlLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** How Consul is configured when nobody has changed it. */
const DEFAULT_LIMITS: TtlLimits = { minMs: 10_000, maxMs: 86_400_000 };

export const isForbidden = says(/permission denied/i);
export const isTokenUnknown = says(/acl not found/i);
export const isLeaderless = says(/no cluster leader/i);

export function errorOf({ status, body }: ConsulAnswer): ConsulError {
  return new ConsulError(`HTTP status ${status}: ${body.trim().slice(0, 200) || 'no text'}`, status);
}

/** @throws {ConsulError} it is not JSON, so it is not Consul's */
export function jsonOf({ body }: ConsulAnswer): unknown {
  try {
    return JSON.parse(body) as unknown;
  } catch {
    throw new ConsulError(`the answer is none of Consul's: ${body.slice(0, 80)}`, undefined);
  }
}

/** @throws {ConsulError} it is no list, so it is not Consul's */
export function listIn(answer: ConsulAnswer): readonly unknown[] {
  const list = jsonOf(answer);
  if (Array.isArray(list)) return list as readonly unknown[];
  throw new ConsulError(`the answer is none of Consul's: ${answer.body.slice(0, 80)}`, undefined);
}

/** What the servers say of a ttl that is too short: "must be between [10s=24h0m0s]". Null when the error is another. */
export function limitsIn(error: unknown): TtlLimits | null {
  if (!(error instanceof ConsulError) || !/invalid session ttl/i.test(error.message)) return null;
  const [, min = '', max = ''] = /\[(\S+)=(\S+)\]/.exec(error.message) ?? [];
  const limits = { minMs: durationMs(min), maxMs: durationMs(max) };
  return limits.minMs > 0 && limits.maxMs >= limits.minMs ? limits : DEFAULT_LIMITS;
}

const UNITS: Readonly<Record<string, number>> = {
  h: 3_600_000,
  m: 60_000,
  s: 1_000,
  ms: 1,
  µs: 1e-3,
  ns: 1e-6,
};

/** Of a duration as Go writes it, e.g. `1m30s`; NaN for anything else. */
export function durationMs(text: string): number {
  if (!/^(?:\d+(?:\.\d+)?(?:h|m|s|ms|µs|ns))+$/.test(text)) return NaN;
  const parts = text.matchAll(/([\d.]+)(h|ms|m|s|µs|ns)/g);
  return [...parts].reduce((sum, [, amount, unit]) => sum + Number(amount) * (UNITS[unit ?? ''] ?? NaN), 0);
}

/** By the text, which stays: the status of one and the same refusal differs between versions. */
function says(message: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof ConsulError && message.test(error.message);
}
