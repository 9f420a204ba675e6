/**
 * The name of a key in Consul. All but letters, digits, `_` and `-` becomes a dot and two hexadecimal digits for each byte:
 * no two keys share a name, none reaches out of the prefix, and nothing on the way of a path resolves or decodes it.
 */
export function nameOf(keyPrefix: string, key: string): string {
  const escaped = Array.from(Buffer.from(key), (byte) =>
    isPlain(byte) ? String.fromCharCode(byte) : hexOf(byte),
  );
  return keyPrefix + escaped.join('');
}

const isPlain = (byte: number): boolean => /[\w-]/.test(String.fromCharCode(byte));

const hexOf = (byte: number): string => `.${byte.toString(16).toUpperCase().padStart(2, '0')}`;
