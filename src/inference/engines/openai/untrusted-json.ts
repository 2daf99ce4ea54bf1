/** Reads values from JSON that another program wrote, without trusting its shape. */

/** The value at the path, or `undefined` if the path ends early. */
export function pick(value: unknown, ...path: readonly (string | number)[]): unknown {
  let found = value
  for (const key of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined
    found = (found as Record<string | number, unknown>)[key]
  }
  return found
}

export const textOr = <T>(value: unknown, otherwise: T): string | T =>
  typeof value === 'string' ? value : otherwise

export const countOr = <T>(value: unknown, otherwise: T): number | T =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : otherwise

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

/** The parsed text, or `undefined` if it is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
