/** How many rows a statement wrote; all databases here say so. */
export function affectedRows({ affected }: { readonly affected?: number | null }): number {
  if (typeof affected === 'number') return affected;
  throw new Error(
    'This driver does not say how many rows a statement wrote, so nobody can tell who was first.',
  );
}
