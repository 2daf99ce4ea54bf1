/** Rejects files that are not records. */

import { isPipe } from '../checkpoint/chain.ts'
import { compressedSuffix } from '../checkpoint/compressed.ts'
import { readBatches, type ReadSummary } from '../checkpoint/reader.ts'
import { ValueError } from '../foundation/errors.ts'

/**
 * Whether the file has no valid line. `false` for a compressed file, whose only frame may be
 * damaged.
 */
export const isNotARecord = (path: string, { lines, bad }: Pick<ReadSummary, 'lines' | 'bad'>) =>
  lines === 0 && bad > 0 && !path.endsWith(`.jsonl${compressedSuffix}`)

export const notARecordError = (path: string): ValueError =>
  new ValueError(`${path} is not a record of tutti`, { code: 'NotARecordError' })

/** Rejects if the file is not a record. Does not check a pipe, which can be read only once. */
export async function expectRecord(path: string): Promise<void> {
  if (isPipe(path)) return
  const batches = readBatches(path)
  const first = await batches.next()
  if (first.done === true && isNotARecord(path, first.value)) throw notARecordError(path)
  if (first.done !== true) await batches.return(undefined as never)
}
