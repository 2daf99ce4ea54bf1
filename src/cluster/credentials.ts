/** Tokens and passwords come from files that nobody else may read, never from the command line. */

import { readFileSync, statSync } from 'node:fs'
import { messageOf, ValueError } from '../foundation/errors.ts'
import { registerSecret } from '../foundation/secrets.ts'

/** The first line of a secret file; its content is masked in everything that leaves the process. */
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
