interface Connection {
  query(sql: string): Promise<unknown>;
}

/** Has the statement wait for locks of others for `seconds` at most. MySQL takes one second for zero. */
export async function withMysqlLockLimit<T>(
  connection: Connection,
  seconds: number,
  statement: () => Promise<T>,
): Promise<T> {
  await connection.query(
    `SET @lock_wait_before = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = ${seconds}`,
  );
  const before = (): Promise<unknown> => connection.query('SET innodb_lock_wait_timeout = @lock_wait_before');
  try {
    const answer = await statement();
    await before();
    return answer;
  } catch (error) {
    await before().catch(() => undefined); // on a broken connection, which goes with its limit: what broke it is told
    throw error;
  }
}
