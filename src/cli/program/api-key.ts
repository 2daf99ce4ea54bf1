/** The key of an inference server: from a file, or from the environment. */

import { ValueError } from '../../foundation/errors.ts'
import { describeReadProblem, readTextFileSync } from '../../foundation/regular-file.ts'

export function readKeyFile(file: string, field = '--api-key-file'): string {
  let key: string
  try {
    key = readTextFileSync(file).trim()
  } catch (error) {
    throw new ValueError(`${field}: ${describeReadProblem(file, error)}`, { field })
  }
  if (key === '') throw new ValueError(`${field}: ${file} is empty`, { field })
  return key
}

/** Returns the key from the file of `--api-key-file`, else from TUTTI_API_KEY, else `null`. */
export function readApiKey(file: string | undefined): string | null {
  if (file !== undefined) return readKeyFile(file)
  return process.env['TUTTI_API_KEY'] || null
}
