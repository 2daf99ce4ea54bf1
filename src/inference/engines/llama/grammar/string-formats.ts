/** The formats of texts that JSON schemas name, as patterns. */

const year = String.raw`\d{4}`
const month = '(?:0[1-9]|1[0-2])'
const day = '(?:0[1-9]|1\\d|2[0-8])'
const time = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d`
const zone = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
const byte = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
const label = '[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?'
const host = String.raw`${label}(?:\.${label}){1,4}`
const hex = '[0-9a-f]'

/** Narrower than the formats are: whatever matches is right. Days end with the 28th. */
export const stringFormats: Readonly<Record<string, string>> = {
  date: `^${year}-${month}-${day}$`,
  time: `^${time}${zone}$`,
  'date-time': `^${year}-${month}-${day}T${time}${zone}$`,
  duration: String.raw`^P(?:\d{1,4}D(?:T\d{1,2}H)?|T\d{1,4}(?:H|M|S))$`,
  uuid: `^${hex}{8}-${hex}{4}-[1-5]${hex}{3}-[89ab]${hex}{3}-${hex}{12}$`,
  email: String.raw`^[a-z0-9](?:[a-z0-9._+-]{0,30}[a-z0-9])?@${host}$`,
  hostname: `^${host}$`,
  ipv4: String.raw`^${byte}\.${byte}\.${byte}\.${byte}$`,
  ipv6: `^(?:${hex}{1,4}:){7}${hex}{1,4}$`,
  uri: String.raw`^https?://${host}(?:/[A-Za-z0-9._~-]{0,32}){0,6}$`,
  url: String.raw`^https?://${host}(?:/[A-Za-z0-9._~-]{0,32}){0,6}$`,
}

/** Formats that say how a value is stored, and restrict nothing that is generated. */
export const freeFormats: ReadonlySet<string> = new Set([
  'int32',
  'int64',
  'float',
  'double',
  'byte',
  'binary',
  'password',
])
