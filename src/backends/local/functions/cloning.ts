/** Whether a value can go to another thread, and which part of it cannot. */

const deepest = 64

/** What a person can do about a value that cannot be cloned. */
export const cloningHint = 'Send plain data; make functions and connections inside the task.'

/** Whether the value is a primitive, which is copied whenever it is passed. */
export function isPlainValue(value: unknown): boolean {
  const type = typeof value
  return value === null || (type !== 'object' && type !== 'function' && type !== 'symbol')
}

function isCloneable(value: unknown): boolean {
  try {
    structuredClone(value)
    return true
  } catch {
    return false
  }
}

/**
 * The path of the first part that cannot be cloned, such as `args[1].callback`. It leads through
 * plain objects, arrays, maps and sets; of another object only itself is named.
 */
export function uncloneablePath(value: unknown, root: string): string {
  let path = root
  let current = value
  const seen = new Set<unknown>()
  for (let depth = 0; depth < deepest; depth++) {
    seen.add(current)
    const wrong = partsOf(current).find(({ part }) => !seen.has(part) && !isCloneable(part))
    if (wrong === undefined) return path
    path += wrong.step
    current = wrong.part
  }
  return path
}

interface Part {
  readonly step: string
  readonly part: unknown
}

/** None of what throws when it is looked at, such as a revoked proxy. */
function partsOf(value: unknown): readonly Part[] {
  try {
    return typeof value === 'object' && value !== null ? partsOfObject(value) : []
  } catch {
    return []
  }
}

function partsOfObject(value: object): readonly Part[] {
  if (Array.isArray(value)) return value.map((part: unknown, at) => ({ step: `[${at}]`, part }))
  if (value instanceof Map) {
    return Array.from(value, ([key, part]: [unknown, unknown]) => [
      { step: `.get(${keyText(key)})`, part },
      { step: '.keys()', part: key },
    ]).flat()
  }
  if (value instanceof Set) return Array.from(value, (part) => ({ step: '.values()', part }))
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== null && prototype !== Object.prototype) return []
  return Object.keys(value).flatMap((key) => {
    try {
      const part = (value as Record<string, unknown>)[key]
      return [{ step: /^[\w$]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`, part }]
    } catch {
      return [{ step: `.${key}`, part: () => {} }]
    }
  })
}

const keyText = (key: unknown): string =>
  typeof key === 'string' ? JSON.stringify(key) : typeof key === 'number' ? String(key) : '…'
