/** The option `--api-key-file`: the key of an inference server. */

import { messageOf, ValueError } from '../../foundation/errors.ts'
import { readTextFileSync } from '../../foundation/regular-file.ts'

export function readKeyFile(file: string): string {
  const field = '--api-key-file'
  let key: string
  try {
    key = readTextFileSync(file).trim()
  } catch (error) {
    throw new ValueError(`${field}: ${file} cannot be read: ${messageOf(error)}`, { field })
  }
  if (key === '') throw new ValueError(`${field}: ${file} is empty`, { field })
  return key
}
