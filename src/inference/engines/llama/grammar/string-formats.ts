/** The string formats of JSON schemas, as patterns. */

const year = String.raw`\d{4}`
const month = '(?:0[1-9]|1[0-2])'
const day = '(?:0[1-9]|1\\d|2[0-8])'
const time = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d`
const zone = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
const byte = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
const hex = '[0-9a-f]'

/** A host name with up to this many labels before the last one, which has only letters. */
const host = (labels: number, letters: number): string =>
  String.raw`(?:[a-z0-9](?:[a-z0-9-]{0,${letters - 2}}[a-z0-9])?\.){1,${labels}}[a-z]{2,6}`
const wideHost = host(4, 32)
const user = (parts: number, letters: number): string =>
  `[a-z0-9]{1,${letters}}(?:[._+-][a-z0-9]{1,${letters}}){0,${parts - 1}}`
const path = (parts: number, letters: number): string =>
  `(?:/[A-Za-z0-9._~-]{0,${letters}}){0,${parts}}`
const uris = [
  `^https?://${wideHost}${path(6, 32)}$`,
  `^https?://${host(3, 16)}${path(4, 16)}$`,
  `^https?://${host(2, 8)}${path(1, 8)}$`,
  `^https?://${host(1, 8)}$`,
]

/**
 * Narrower than the formats: every match is valid. Days end with the 28th. The widest pattern comes
 * first; others are for texts with a smaller maximum length.
 */
export const stringFormats: Readonly<Record<string, readonly string[]>> = {
  date: [`^${year}-${month}-${day}$`],
  time: [`^${time}${zone}$`],
  'date-time': [`^${year}-${month}-${day}T${time}${zone}$`, `^${year}-${month}-${day}T${time}Z$`],
  duration: [String.raw`^P(?:\d{1,4}D(?:T\d{1,2}H)?|T\d{1,4}(?:H|M|S))$`],
  uuid: [`^${hex}{8}-${hex}{4}-[1-5]${hex}{3}-[89ab]${hex}{3}-${hex}{12}$`],
  email: [
    `^${user(3, 16)}@${wideHost}$`,
    `^${user(2, 8)}@${host(2, 8)}$`,
    `^${user(1, 8)}@${host(1, 8)}$`,
  ],
  hostname: [`^${wideHost}$`, `^${host(2, 16)}$`, `^${host(1, 8)}$`],
  ipv4: [String.raw`^${byte}\.${byte}\.${byte}\.${byte}$`],
  ipv6: [`^(?:${hex}{1,4}:){7}${hex}{1,4}$`],
  uri: uris,
  url: uris,
}

/**
 * Patterns that zod writes for formats, with look-around or without a limit of length. They allow
 * every text that the patterns above allow.
 */
export const formatsOfPatterns: ReadonlyMap<string, string> = new Map(
  Object.entries({
    email: [
      String.raw`^(?:[A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+-]@`,
      String.raw`(?:[A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`,
    ],
    'email of zod up to 4.3': [
      String.raw`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@`,
      String.raw`([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`,
    ],
    duration: [
      String.raw`^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?`,
      String.raw`(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$`,
    ],
    hostname: [
      String.raw`^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`,
      String.raw`(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$`,
    ],
  }).map(([name, parts]) => [parts.join(''), name.split(' ', 1).join('')]),
)

/** Formats about the storage of a value, which do not restrict generated values. */
export const freeFormats: ReadonlySet<string> = new Set([
  'int32',
  'int64',
  'float',
  'double',
  'byte',
  'binary',
  'password',
])
