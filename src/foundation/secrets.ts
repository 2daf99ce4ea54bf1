/**
 * Masks secrets in text that leaves the process: registered ones, the values of environment
 * variables whose names suggest a secret, and what has the form of a well-known credential.
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

/** Credentials that are known by their form; matched in one pass over output, which is long. */
const secretForms: readonly RegExp[] = [
  // A user and a password in an address.
  /(?<=:\/\/)[^\s/@:]*:[^\s/@]+(?=@)/,
  /\b(?:Bearer|Basic)\s+(?=\S{0,64}[\d=])[\w.~+/-]{8,4096}=*/,
  /(?<=\b[Aa]uthorization:\s*)\S+(?:[ \t]+\S+)?/,
  // OpenAI, Anthropic and Stripe; GitHub; GitLab; Slack; AWS; Google; npm; Hugging Face; a JWT.
  /\b[spr]k[-_](?=[\w-]{0,32}\d)[\w-]{16,512}/,
  /\b(?:gh[a-z]_|github_pat_)\w{16,}/,
  /\bgl[a-z]{2,6}-[\w-]{16,512}/,
  /\bxox[a-z]-[\w-]{8,512}/,
  /\bA[KS]IA[A-Z\d]{16}\b/,
  /\bAIza[\w-]{30,}/,
  /\b(?:npm|hf)_[A-Za-z\d]{16,}/,
  /\beyJ[\w-]{5,512}\.eyJ[\w-]{1,8192}\.[\w-]*/,
]
const anyForm = new RegExp(secretForms.map(({ source }) => source).join('|'), 'g')
/** Options and headers whose values are secrets, beside those whose names say so in part. */
const secretOption =
  /^(?:pass(?:wd|word|phrase|code)?|auth(?:orization)?|pwd|pw|bearer|pat|jwt|cookies?|key)$/i
/** Names of things that are not secret themselves: where one is, or how text is cut. */
const plainOption = /[-_](?:file|path)$|tokeniz/i

/** Whether the value of an option, a header or a variable of this name is a secret. */
function namesSecret(name: string, value: string): boolean {
  const word = name.replace(/^-+/, '')
  if (plainOption.test(word)) return false
  // How many tokens a model may write.
  if (/tokens$/i.test(word) && /^\d{1,9}$/.test(value)) return false
  return secretOption.test(word) || secretName.test(word.replaceAll('-', '_'))
}

/** For each argument of a command whether it holds a secret, by its form or by its option. */
export function findSecretArguments(args: readonly string[]): boolean[] {
  return args.map((arg, at) => {
    const before = args[at - 1] ?? ''
    const isValue = before.startsWith('-') && !/[=:]/.test(before) && namesSecret(before, arg)
    // `--name=value`, `NAME=value`, `Name: value`.
    const [, name = '', value = ''] = /^([\w-]+)\s*[=:]\s*(.+)$/s.exec(arg) ?? []
    const isNamed = value !== '' && !value.startsWith('//') && namesSecret(name, value)
    return isValue || isNamed || /^Bearer\s+\S/i.test(arg) || maskSecrets(arg) !== arg
  })
}

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

/** The text with every known secret, and everything that has the form of one, replaced. */
export function maskSecrets(text: string): string {
  return maskKnown(text).replace(anyForm, mask)
}

function maskKnown(text: string): string {
  if (pattern === undefined) pattern = createPattern()
  return pattern === null ? text : text.replace(pattern, mask)
}

/**
 * A copy in which every text and key has its known secrets masked; the same object when there are
 * none in it. These are values of the application, of any form.
 */
export function maskSecretsIn<Value extends JsonValue>(value: Value): Value {
  if (pattern === undefined) pattern = createPattern()
  return pattern === null ? value : (maskValue(value) as Value)
}

function maskValue(value: JsonValue): JsonValue {
  if (typeof value === 'string') return maskKnown(value)
  if (typeof value !== 'object' || value === null) return value
  if (isList(value)) {
    const items = value.map((item) => maskValue(item))
    return items.every((item, at) => item === value[at]) ? value : Object.freeze(items)
  }
  let isSame = true
  const entries = Object.entries(value).map(([key, part]) => {
    const masked = [maskKnown(key), maskValue(part)] as const
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
