interface Stream {
  destroy(): void;
  setTimeout(timeoutMs: number): void;
}

/** What the drivers have in common. `pg` keeps its socket one level deeper than `mysql2`. */
export interface ServerConnection {
  readonly stream?: Stream;
  readonly connection?: { readonly stream?: Stream };
  on(event: string, listener: (told: never) => void): unknown;
  destroy?(): void;
}

/** No goodbye: a server that does not read would never take it, and keep what the connection has for as long. */
export function cut(connection: ServerConnection): void {
  const { connection: inner, stream = inner?.stream } = connection;
  if (stream) stream.destroy();
  else connection.destroy?.();
}
