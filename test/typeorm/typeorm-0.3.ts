/**
 * Runs specs once more with TypeORM 0.3 in the place of 1.x, for the library, for @nestjs/typeorm and for everybody else.
 * Called at the top of a spec whose first line mocks 'typeorm'.
 */
export function describeWithTypeOrm03(...specs: readonly string[]): void {
  describe('With TypeORM 0.3', () => {
    it('in the place of 1.x', () => {
      const { getConnection } = jest.requireMock<{ getConnection?: unknown }>('typeorm');
      expect(getConnection).toBeDefined(); // 1.x has it no longer
    });
    for (const spec of specs) jest.requireActual<object>(`./${spec}.spec`);
  });
}
