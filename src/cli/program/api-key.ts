/** Reads the file of an option such as `--api-key-file`. */

import { messageOf, ValueError } from '../../foundation/errors.ts'
import { readTextFileSync } from '../../foundation/regular-file.ts'

export function readKeyFile(file: string, field = '--api-key-file'): string {
  let key: string
  try {
    key = readTextFileSync(file).trim()
  } catch (error) {
    throw new ValueError(`${field}: ${file} cannot be read: ${messageOf(error)}`, { field })
  }
  if (key === '') throw new ValueError(`${field}: ${file} is empty`, { field })
  return key
}
