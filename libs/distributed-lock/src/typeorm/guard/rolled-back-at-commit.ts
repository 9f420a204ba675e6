/** PostgreSQL rolled back what was to be committed, because a statement of it had failed. Nothing of it was written. */
export class RolledBackAtCommitError extends Error {
  override readonly name = 'RolledBackAtCommitError';

  constructor() {
    super(
      'PostgreSQL rolled this transaction back at COMMIT, because one of its statements had failed before. ' +
        'Nothing of it was written; do not swallow errors of statements, or wrap these in a transaction of their own.',
    );
  }
}
