/** Recognizes model files by their first bytes. */

import { errnoOf, messageOf } from '../../foundation/errors.ts'
import { openRegularFile } from '../../foundation/regular-file.ts'

/** Whether the file begins with the GGUF magic number. Rejects if the file cannot be read. */
async function isGguf(path: string): Promise<boolean> {
  await using file = await openRegularFile(path)
  const { buffer } = await file.read(Buffer.alloc(4), 0, 4, 0)
  return buffer.toString('latin1') === 'GGUF'
}

/** Returns why a file is no model; `null` if it begins like one. */
export async function findModelProblem(path: string): Promise<string | null> {
  try {
    return (await isGguf(path)) ? null : `${path} is not a GGUF file`
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return `there is no file ${path}`
    return `${path} cannot be read: ${messageOf(error)}`
  }
}

export const modelFileHint =
  'give the path of a GGUF file (npx tutti model get stories15M fetches a small one, ' +
  'https://huggingface.co/models?library=gguf has real ones), or a name on the hub such as ' +
  'hf:user/model:Q4_K_M'
