/**
 * Creates a self-signed certificate for one run. Only the run's agents trust it; they get it when
 * they start. Node cannot write X.509, so this file writes the few structures that are needed.
 */

import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { isIPv4 } from 'node:net'
import { ValueError } from '../foundation/errors.ts'

export interface RunCertificate {
  /** Certificate and key are in PEM form. */
  readonly certificate: string
  readonly key: string
}

const dayMs = 86_400_000
/** Longer than any allocation. */
const validDays = 400

/** ASN.1 tags. */
const tag = {
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  objectId: 0x06,
  utf8String: 0x0c,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
  addressName: 0x87,
  version: 0xa0,
  extensions: 0xa3,
} as const

/** The encoded object ids of ecdsa-with-SHA256, commonName and subjectAltName. */
const ecdsaWithSha256 = Buffer.from('06082a8648ce3d040302', 'hex')
const commonName = Buffer.from('0603550403', 'hex')
const subjectAltName = Buffer.from('0603551d11', 'hex')

/** The certificate is valid for these addresses only. `now` is in seconds. */
export function createRunCertificate(addresses: readonly string[], now: number): RunCertificate {
  const keys = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const name = list(element(tag.set, list(commonName, element(tag.utf8String, text('tutti')))))
  const names = list(...addresses.map((one) => element(tag.addressName, toBytes(one))))
  const extension = list(subjectAltName, element(tag.octetString, names))
  const algorithm = list(ecdsaWithSha256)
  // Valid from a day before now, because the clock of another node may be slow.
  const validity = list(time(now * 1000 - dayMs), time(now * 1000 + validDays * dayMs))
  const body = list(
    element(tag.version, element(tag.integer, Buffer.from([2]))),
    element(tag.integer, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    algorithm,
    name,
    validity,
    name,
    keys.publicKey.export({ type: 'spki', format: 'der' }),
    element(tag.extensions, list(extension)),
  )
  const signature = Buffer.concat([Buffer.from([0]), sign('sha256', body, keys.privateKey)])
  const certificate = list(body, algorithm, element(tag.bitString, signature))
  return {
    certificate: toPem(certificate),
    key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}

const text = (value: string): Buffer => Buffer.from(value, 'utf8')

const list = (...parts: readonly Buffer[]): Buffer => element(tag.sequence, Buffer.concat(parts))

function element(kind: number, content: Buffer): Buffer {
  const { length } = content
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([kind, ...size]), content])
}

function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replaceAll(/\D/g, '').slice(0, 14)
  return element(tag.generalizedTime, text(`${digits}Z`))
}

function toBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number))
  const groups = toGroups(address)
  if (groups !== null) return Buffer.from(groups.flatMap((group) => [group >> 8, group & 0xff]))
  throw new ValueError(`expected an IP address, got ${JSON.stringify(address)}`)
}

/** The eight groups of an IPv6 address. */
function toGroups(address: string): number[] | null {
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
