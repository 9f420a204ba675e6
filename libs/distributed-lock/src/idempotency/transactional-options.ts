export type IsolationLevel = 'READ UNCOMMITTED' | 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE';

/** How a body and its record share one transaction. */
export interface TransactionalOptions {
  /**
   * `'first'`, the default: the record is claimed before the transaction begins, so that repetitions are told at once, and
   * hold no connection. After a crash its lease has to end first.
   *
   * `'inside'`: the claim is a part of the transaction. There is no lease and nothing to lapse: a crash takes all back at
   * once. For short bodies: nobody sees the record before the end.
   */
  readonly claim?: 'first' | 'inside';
  /** Default: that of the DataSource, or of its database. */
  readonly isolation?: IsolationLevel;
}
