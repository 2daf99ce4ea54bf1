/** Recognizes model files by their first bytes. */

import { openRegularFile } from '../../foundation/regular-file.ts'

/** Whether the file begins with the GGUF magic number. Rejects if the file cannot be read. */
export async function isGguf(path: string): Promise<boolean> {
  await using file = await openRegularFile(path)
  const { buffer } = await file.read(Buffer.alloc(4), 0, 4, 0)
  return buffer.toString('latin1') === 'GGUF'
}
