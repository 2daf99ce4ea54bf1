/** Secrets come from files that nobody else may read, never from the command line. */

import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { messageOf, ValueError } from '../foundation/errors.ts'
import { registerSecret } from '../foundation/secrets.ts'

/** The content of a secret file, trimmed; it is masked in everything that leaves the process. */
export function readSecretFile(field: string, file: string): string {
  let content: string
  let mode: number
  try {
    mode = statSync(file).mode
    content = readFileSync(file, 'utf8')
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

/** The content of a `.creds` file, or of one with an NKey seed alone. */
export function readCredentials(field: string, file: string): string {
  const content = readSecretFile(field, file)
  const [seed] = seedPattern.exec(content) ?? []
  const isCredentials = content === seed || content.includes('BEGIN NATS USER JWT')
  if (seed === undefined || !isCredentials) {
    throw new ValueError(`${field}: ${file} is no .creds file and has no NKey seed of a user`, {
      field,
    })
  }
  registerSecret(seed)
  return content
}

/** For files that a library reads later: what is wrong is told with the option's name. */
export function expectReadableFile(field: string, file: string): string {
  try {
    accessSync(file, constants.R_OK)
    return file
  } catch (cause) {
    throw new ValueError(`${field}: ${file} cannot be read: ${messageOf(cause)}`, { field, cause })
  }
}
