/** Reads secrets from files that only their owner may access, never from the command line. */

import { X509Certificate } from 'node:crypto'
import { messageOf, ValueError } from '../foundation/errors.ts'
import { expectString } from '../foundation/options.ts'
import { readRegularFileSync, readTextFileSync } from '../foundation/regular-file.ts'
import { registerSecret } from '../foundation/secrets.ts'

/** Returns the trimmed content, which is masked in all output of the process. */
export function readSecretFile(field: string, given: unknown): string {
  const file = expectString(field, given)
  let content: string
  let mode: number
  try {
    const found = readRegularFileSync(file)
    mode = found.mode
    content = found.bytes.toString('utf8')
  } catch (cause) {
    throw new ValueError(`${field}: ${file} cannot be read: ${messageOf(cause)}`, { field, cause })
  }
  if ((mode & 0o077) !== 0) {
    throw new ValueError(`${field}: others can read ${file}`, {
      field,
      hint: `chmod 600 ${file}`,
    })
  }
  const secret = content.trim()
  if (secret === '') throw new ValueError(`${field}: ${file} is empty`, { field })
  registerSecret(secret)
  return secret
}

const seedPattern = /\bSU[A-Z2-7]{56}\b/

/** Returns the content of a `.creds` file, or of a file with only an NKey seed. */
export function readCredentials(field: string, given: unknown): string {
  const content = readSecretFile(field, given)
  const [seed] = seedPattern.exec(content) ?? []
  const isCredentials = content === seed || content.includes('BEGIN NATS USER JWT')
  if (seed === undefined || !isCredentials) {
    throw new ValueError(
      `${field}: ${String(given)} is no .creds file and has no NKey seed of a user`,
      {
        field,
      },
    )
  }
  registerSecret(seed)
  return content
}

const certificatePattern = /-----BEGIN ([A-Z0-9 ]*CERTIFICATE)-----[\s\S]*?-----END \1-----/g
const privateKeyPattern = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/

/** Throws for a certificate that cannot be read. The NATS client would ignore it. */
export function expectCertificateFile(field: string, given: unknown): void {
  const file = expectString(field, given)
  expectCertificates(field, readPem(field, file), file)
}

/** Throws if the text has no certificate or an unreadable one. `where` names the text's source. */
export function expectCertificates(field: string, text: string, where: string): void {
  const found = text.match(certificatePattern) ?? []
  if (found.length === 0) {
    throw new ValueError(`${field}: ${where} has no certificate in PEM form`, { field })
  }
  try {
    found.forEach((one) => new X509Certificate(one))
  } catch (cause) {
    const why = `${where} has a certificate that cannot be read: ${messageOf(cause)}`
    throw new ValueError(`${field}: ${why}`, { field, cause })
  }
}

export function expectPrivateKeyFile(field: string, given: unknown): void {
  const file = expectString(field, given)
  if (privateKeyPattern.test(readPem(field, file))) return
  throw new ValueError(`${field}: ${file} has no private key in PEM form`, { field })
}

function readPem(field: string, file: string): string {
  try {
    return readTextFileSync(file)
  } catch (cause) {
    throw new ValueError(`${field}: ${file} cannot be read: ${messageOf(cause)}`, { field, cause })
  }
}
