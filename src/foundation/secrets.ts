/**
 * Masks secrets in text that leaves the process: registered ones, and the values of environment
 * variables whose names suggest a secret.
 */

import type { JsonValue } from './json-value.ts'

const secretName = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
/** Shorter values would mask ordinary words. */
const shortest = 8
const mask = '[masked]'

/** Never shrinks: a program may remove a secret from its environment after reading it. */
const known = new Set<string>()
/** `null` if there are no secrets; `undefined` until the environment is scanned, which is slow. */
let pattern: RegExp | null | undefined

/** Whether the name of a variable or an option suggests that its value is a secret. */
export const namesSecret = (name: string): boolean =>
  secretName.test(name.replaceAll('-', '_')) || secretName.test(name)

/** Adds a secret that is not in the environment, such as a configured token. */
export function registerSecret(secret: string): void {
  if (secret.length < shortest) return
  known.add(secret)
  pattern = undefined
}

/** Scans the environment again at the next use. */
export function lookForSecrets(): void {
  pattern = undefined
}

/** The text with every known secret replaced. */
export function maskSecrets(text: string): string {
  if (pattern === undefined) pattern = createPattern()
  return pattern === null ? text : text.replace(pattern, mask)
}

/** A copy in which every text and key is masked; the same object when there is no secret in it. */
export function maskSecretsIn<Value extends JsonValue>(value: Value): Value {
  if (pattern === undefined) pattern = createPattern()
  return pattern === null ? value : (maskValue(value) as Value)
}

function maskValue(value: JsonValue): JsonValue {
  if (typeof value === 'string') return maskSecrets(value)
  if (typeof value !== 'object' || value === null) return value
  if (isList(value)) {
    const items = value.map((item) => maskValue(item))
    return items.every((item, at) => item === value[at]) ? value : Object.freeze(items)
  }
  let isSame = true
  const entries = Object.entries(value).map(([key, part]) => {
    const masked = [maskSecrets(key), maskValue(part)] as const
    isSame &&= masked[0] === key && masked[1] === part
    return masked
  })
  return isSame ? value : Object.freeze(Object.fromEntries(entries))
}

const isList = (value: JsonValue): value is readonly JsonValue[] => Array.isArray(value)

function createPattern(): RegExp | null {
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined && value.length >= shortest && secretName.test(name)) known.add(value)
  }
  if (known.size === 0) return null
  const longestFirst = [...known].toSorted((a, b) => b.length - a.length)
  return new RegExp(longestFirst.map(escapePattern).join('|'), 'g')
}

const escapePattern = (text: string): string =>
  text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`)
