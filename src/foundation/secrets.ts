/** Masks known secrets, and text that looks like a credential, in text that leaves the process. */

import type { JsonValue } from './json-value.ts'
import { expectSecret } from './options.ts'

const secretName = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
/** The minimum length of a secret. Masking shorter values would also mask ordinary words. */
const minSecretLength = 8
const mask = '[masked]'

/** Never shrinks: a program may remove a secret from its environment after reading it. */
const knownSecrets = new Set<string>()
/** `null` if there are no secrets, `undefined` if `knownSecrets` has changed. */
let secretPattern: RegExp | null | undefined
/** Whether the environment was scanned in the current microtask; see `findSecrets`. */
let isScanned = false

/** The forms of well-known credentials. They are joined into one pattern, for speed. */
const credentialForms: readonly RegExp[] = [
  // A user and a password in a URL.
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
const credentialPattern = new RegExp(credentialForms.map(({ source }) => source).join('|'), 'g')
const secretOptionName =
  /^(?:pass(?:wd|word|phrase|code)?|auth(?:orization)?|pwd|pw|bearer|pat|jwt|cookies?|key)$/i
/** Names of options whose values are not secret: paths of files, and settings of tokenizers. */
const plainOptionName = /[-_](?:file|path)$|tokeniz/i

function isSecretName(name: string, value: string): boolean {
  const bareName = name.replace(/^-+/, '')
  if (plainOptionName.test(bareName)) return false
  // A number is not a secret but a limit for a model's tokens, as in `--max-tokens 100`.
  if (/tokens$/i.test(bareName) && /^\d{1,9}$/.test(value)) return false
  return secretOptionName.test(bareName) || secretName.test(bareName.replaceAll('-', '_'))
}

/** For each argument of a command: whether its form or its option suggests a secret. */
export function findSecretArguments(args: readonly string[]): boolean[] {
  return args.map((arg, at) => {
    const previous = args[at - 1] ?? ''
    const isOption = previous.startsWith('-') && !/[=:]/.test(previous)
    const isValue = isOption && isSecretName(previous, arg)
    // Matches `--name=value`, `NAME=value` and `Name: value`.
    const [, name = '', value = ''] = /^([\w-]+)\s*[=:]\s*(.+)$/s.exec(arg) ?? []
    const isNamed = value !== '' && !value.startsWith('//') && isSecretName(name, value)
    return isValue || isNamed || /^Bearer\s+\S/i.test(arg) || maskCommand(arg) !== arg
  })
}

/**
 * Adds a secret that is not in the environment. If it is invalid, the error contains only the name
 * of the field, not the value.
 */
export function registerSecret(secret: string, field = 'secret'): void {
  addSecret(expectSecret(field, secret))
}

function addSecret(secret: string): void {
  if (secret.length < minSecretLength || knownSecrets.has(secret)) return
  knownSecrets.add(secret)
  secretPattern = undefined
}

/** Masks every known secret, and all text that looks like a well-known credential. */
export function maskSecrets(text: string): string {
  return maskKnown(text).replace(credentialPattern, mask)
}

const word = String.raw`(?:"[^"]*"|'[^']*'|[^\s;|&"']+)`
/** Patterns of named values in a command line: `NAME=value`, `--name=value` and `--name value`. */
const namedValues = [
  new RegExp(String.raw`([\w-]{1,100})(=)${word}`, 'g'),
  new RegExp(String.raw`(?<=^|\s)(-{1,2}[\w-]{1,100})( +)(?!-)${word}`, 'g'),
]

/** Like `maskSecrets`, but also masks values of variables and options with secret names. */
export function maskCommand(command: string): string {
  let masked = maskSecrets(command)
  for (const named of namedValues) {
    masked = masked.replace(named, (all: string, name: string, separator: string) => {
      const value = all.slice(name.length + separator.length)
      const isSecret = secretName.test(name.replaceAll('-', '_')) && isSecretName(name, value)
      return isSecret ? name + separator + mask : all
    })
  }
  return masked
}

function maskKnown(text: string): string {
  const secrets = findSecrets()
  return secrets === null ? text : text.replace(secrets, mask)
}

/**
 * Masks known secrets in texts and keys, in a copy if necessary. Text that only looks like a
 * credential is kept, because the values are the application's own.
 */
export function maskSecretsIn<Value extends JsonValue>(value: Value): Value {
  return findSecrets() === null ? value : (maskValue(value) as Value)
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

/**
 * A pattern of all known secrets; `null` if there are none. The environment may change at any time,
 * but a scan takes 10 µs, so it is scanned once per microtask.
 */
function findSecrets(): RegExp | null {
  if (!isScanned) {
    isScanned = true
    queueMicrotask(expireScan)
    scanEnvironment()
  }
  if (secretPattern === undefined) secretPattern = createPattern()
  return secretPattern
}

const expireScan = (): void => {
  isScanned = false
}

function scanEnvironment(): void {
  // Reads only the names at first, because reading all values takes several times as long.
  for (const name of Object.keys(process.env)) {
    const isSecret = secretName.test(name)
    if (isSecret) addSecret(process.env[name] ?? '')
  }
}

function createPattern(): RegExp | null {
  if (knownSecrets.size === 0) return null
  const byLength = [...knownSecrets].toSorted((a, b) => b.length - a.length)
  return new RegExp(byLength.map(escapePattern).join('|'), 'g')
}

const escapePattern = (text: string): string =>
  text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`)
