/**
 * Keeps secrets out of what leaves the process: values of telling environment variables, and
 * registered ones.
 */

const tellingName = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
/** Shorter values would mask ordinary words. */
const shortest = 8
const mask = '[masked]'

/** Also what was once in the environment: a careful program takes it out again. */
const known = new Set<string>()
/** `null`: there are none. Looking through the environment costs more than most texts. */
let pattern: RegExp | null | undefined

/** A secret that came by another way than the environment, such as a configured token. */
export function registerSecret(secret: string): void {
  if (secret.length < shortest) return
  known.add(secret)
  pattern = undefined
}

/** Looks through the environment again, which may have been filled since. */
export function lookForSecrets(): void {
  pattern = undefined
}

/** The text with every known secret replaced. */
export function maskSecrets(text: string): string {
  if (pattern === undefined) pattern = createPattern()
  return pattern === null ? text : text.replace(pattern, mask)
}

function createPattern(): RegExp | null {
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined && value.length >= shortest && tellingName.test(name)) known.add(value)
  }
  if (known.size === 0) return null
  const longestFirst = [...known].toSorted((a, b) => b.length - a.length)
  return new RegExp(longestFirst.map(escapePattern).join('|'), 'g')
}

const escapePattern = (text: string): string =>
  text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`)
