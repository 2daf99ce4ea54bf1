/** `tutti journal repair` and `tutti journal compress`: write a copy next to a record. */

import { statSync } from 'node:fs'
import { countText, numberText } from '../../views/readable.ts'
import { compressRecord } from '../../checkpoint/compress.ts'
import { findChain } from '../../checkpoint/chain.ts'
import { isCompressed } from '../../checkpoint/compressed.ts'
import { standardInput } from '../../checkpoint/reader.ts'
import { repairRecord } from '../../checkpoint/repair.ts'
import { readRunCommand } from '../../checkpoint/run-file.ts'
import { ValueError } from '../../foundation/errors.ts'
import { findRecord } from '../../record/find-record.ts'
import { removeSnapshot } from '../../record/snapshot.ts'
import { exitCodes } from '../exit.ts'
import { describeBadLine, problemLines } from '../journal.ts'
import type { Output } from '../output.ts'
import { resumeCommand } from '../run/resume-command.ts'
import { expectNotGrowing, expectRecord } from './open-record.ts'
import { withReadingProgress } from './reading-progress.ts'

/**
 * Writes a copy with the readable lines of a record. Resolves with 0 even if the copy is not valid.
 */
export async function repairJournal(source: string, output: Output): Promise<number> {
  const path = await expectCopyable(await findRecord(source))
  const { problems, ...repaired } = await withReadingProgress(output, (followed) =>
    repairRecord(path, followed),
  )
  const { kept, mended, dropped, path: copy } = repaired
  const command = readRunCommand((await findChain(copy)).files)
  output.result({ ...repaired, problems }, [
    `${copy}: ${countText(kept, 'line')} kept, ${dropped} left out` +
      (mended > 0 ? `, ${mended} without the NUL bytes before them` : ''),
    ...problemLines(problems.map(describeBadLine), dropped),
    `check    npx tutti journal verify ${copy}`,
    ...(command === null ? [] : [`resume   ${resumeCommand(copy, command)}`]),
  ])
  return exitCodes.ok
}

export async function compressJournal(source: string, output: Output): Promise<number> {
  const path = await expectCopyable(await findRecord(source))
  if (isCompressed(path)) throw new ValueError(`${path} is compressed already`, { got: path })
  const {
    bytes,
    originalBytes,
    frames,
    path: copy,
  } = await withReadingProgress(output, (followed) => compressRecord(path, followed))
  // Removes both snapshots, because the user may remove the record now, and a snapshot of an
  // earlier copy is outdated.
  for (const file of [path, copy]) await removeSnapshot(file)
  const share = originalBytes === 0 ? 100 : (100 * bytes) / originalBytes
  const value = { path: copy, bytes, original_bytes: originalBytes, frames }
  output.result(value, [
    `${copy}: ${numberText(bytes)} bytes, ${share.toFixed(1)} % of the record`,
    `every command reads it; ${path} is no longer needed`,
  ])
  return exitCodes.ok
}

/** Throws for a record that is still being written, because the copy would be incomplete. */
async function expectCopyable(path: string): Promise<string> {
  if (path === standardInput) {
    throw new ValueError(`${path} is not a file: the copy is written next to it`, { got: path })
  }
  await expectRecord(path)
  if (statSync(path).size === 0) {
    throw new ValueError(`${path} is empty: there is nothing to copy`, { code: 'NotARecordError' })
  }
  await expectNotGrowing(path)
  return path
}
