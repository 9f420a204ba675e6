/** One line of the gateway's answers. Streaming calls wrap theirs in `result`. */
export interface GatewayLine {
  readonly result?: object;
}

/** Of gRPC: this member does not reach the others, or has no leader. */
const UNAVAILABLE = 14;

/** What etcd, or the gateway in front of it, refused. */
export class EtcdError extends Error {
  override readonly name = 'EtcdError';

  constructor(
    message: string,
    /** Of gRPC; undefined where something else than etcd answered. */
    readonly code: number | undefined,
  ) {
    super(message);
  }
}

/** @throws {EtcdError} one of the lines is an error, or none of etcd's */
export function parseLines(body: string): GatewayLine[] {
  return body
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map(parseLine);
}

/** @throws {EtcdError} the line is an error, or none of etcd's */
export function parseLine(line: string): GatewayLine {
  const said = jsonOf(line);
  const failure = typeof said['error'] === 'object' && said['error'] !== null ? said['error'] : said;
  const { code, message, grpc_code: grpcCode } = failure as Record<string, unknown>;
  const number = typeof grpcCode === 'number' ? grpcCode : code;
  if (said['error'] === undefined && typeof number !== 'number') return said;
  throw new EtcdError(String(message), typeof number === 'number' ? number : undefined);
}

export const isLeaseTaken = says(/lease already exists/);
export const isLeaseGone = says(/requested lease not found/);
export const isForbidden = says(/permission denied/);
export const isLoginWrong = says(/user name is empty|authentication failed|authentication is not enabled/);
export const isAuthExpired = says(/invalid auth token/);

/** Another host may do better: this one cannot be reached, or does not reach the others. */
export function isUnavailable(error: unknown): boolean {
  return !(error instanceof EtcdError) || error.code === undefined || error.code === UNAVAILABLE;
}

/** By the text, which stays: the code of one and the same refusal differs between versions and members. */
function says(message: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof EtcdError && message.test(error.message);
}

function jsonOf(line: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(line);
    if (typeof parsed === 'object' && parsed !== null) return parsed as Record<string, unknown>;
  } catch {
    // Told below: whatever answered is not etcd's gateway.
  }
  throw new EtcdError(`the answer is none of etcd's gateway: ${line.slice(0, 80)}`, undefined);
}
