/** Creates a self-signed certificate, which Node cannot do. Only the run's agents trust it. */

import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { isIPv4 } from 'node:net'
import { ValueError } from '../foundation/errors.ts'

export interface RunCertificate {
  /** In PEM format, like the key. */
  readonly certificate: string
  readonly key: string
}

const dayMs = 86_400_000
/** How long a certificate is valid: longer than any allocation lasts. */
const validDays = 400

const tag = {
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  utf8String: 0x0c,
  generalizedTime: 0x18,
  set: 0x31,
  ipAddress: 0x87,
  version: 0xa0,
  extensions: 0xa3,
} as const

/** Object identifiers in DER encoding. */
const ecdsaWithSha256 = Buffer.from('06082a8648ce3d040302', 'hex')
const commonName = Buffer.from('0603550403', 'hex')
const subjectAltName = Buffer.from('0603551d11', 'hex')

/** The certificate is valid only for these addresses. `now` is in seconds since the epoch. */
export function createRunCertificate(addresses: readonly string[], now: number): RunCertificate {
  const keys = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const name = sequence(
    encode(tag.set, sequence(commonName, encode(tag.utf8String, toUtf8('tutti')))),
  )
  const names = sequence(...addresses.map((one) => encode(tag.ipAddress, toAddressBytes(one))))
  const extension = sequence(subjectAltName, encode(tag.octetString, names))
  const algorithm = sequence(ecdsaWithSha256)
  // The validity begins a day ago, because the clock of another node may be slow.
  const validity = sequence(
    encodeTime(now * 1000 - dayMs),
    encodeTime(now * 1000 + validDays * dayMs),
  )
  const body = sequence(
    encode(tag.version, encode(tag.integer, Buffer.from([2]))),
    encode(tag.integer, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    algorithm,
    name,
    validity,
    name,
    keys.publicKey.export({ type: 'spki', format: 'der' }),
    encode(tag.extensions, sequence(extension)),
  )
  const signature = Buffer.concat([Buffer.from([0]), sign('sha256', body, keys.privateKey)])
  const certificate = sequence(body, algorithm, encode(tag.bitString, signature))
  return {
    certificate: toPem(certificate),
    key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}

const toUtf8 = (value: string): Buffer => Buffer.from(value, 'utf8')

const sequence = (...parts: readonly Buffer[]): Buffer => encode(0x30, Buffer.concat(parts))

function encode(kind: number, content: Buffer): Buffer {
  const { length } = content
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([kind, ...size]), content])
}

function encodeTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replaceAll(/\D/g, '').slice(0, 14)
  return encode(tag.generalizedTime, toUtf8(`${digits}Z`))
}

function toAddressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number))
  const groups = parseIPv6Groups(address)
  if (groups !== null) return Buffer.from(groups.flatMap((group) => [group >> 8, group & 0xff]))
  throw new ValueError(`expected an IP address, got ${JSON.stringify(address)}`)
}

function parseIPv6Groups(address: string): number[] | null {
  const host = URL.parse(`http://[${address}]/`)?.hostname.slice(1, -1)
  if (host === undefined) return null
  const [left = '', right] = host.split('::')
  const toNumbers = (part: string): number[] =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16))
  const [first, last] = [toNumbers(left), toNumbers(right ?? '')]
  const zeros = right === undefined ? 0 : 8 - first.length - last.length
  return [...first, ...Array.from({ length: zeros }, () => 0), ...last]
}

function toPem(der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`
}
