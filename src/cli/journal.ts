/** `tutti journal verify`: judges a checkpoint file. */

import { type BadLine, readBatches } from '../checkpoint/reader.ts'
import { Verifier } from '../checkpoint/verify.ts'
import { exitCodes } from './exit-codes.ts'
import type { Output } from './output.ts'

const mostShown = 10

/**
 * Exit code 0 when the record is sound, 1 when it is not. A torn tail alone is sound: a crash tears
 * it.
 */
export async function verifyJournal(path: string, output: Output): Promise<number> {
  const verifier = new Verifier()
  const bad: BadLine[] = []
  const batches = readBatches(path, { onBadLine: (line) => bad.push(line) })
  let batch = await batches.next()
  while (batch.done !== true) {
    for (const line of batch.value) verifier.take(line)
    batch = await batches.next()
  }
  const { torn, unknown } = batch.value
  const verdict = verifier.verdict()
  const isSound = verdict.problemCount === 0 && bad.length === 0
  const problems = [
    ...bad.map(({ line, offset, reason }) => `line ${line}, byte ${offset}: ${reason}`),
    ...verdict.problems,
  ]
  const facts = [
    `${verdict.tasks} tasks, ${verdict.events} events`,
    isSound ? 'order ok, 1 terminal each, counters agree' : `${problems.length} problems`,
    ...(verdict.hasEnded
      ? []
      : [`the session has not ended, ${verdict.unfinished} tasks unfinished`]),
    ...(torn === null ? [] : [`torn tail at line ${torn.line}, byte ${torn.offset}`]),
    ...(unknown > 0 ? [`${unknown} lines of unknown sections`] : []),
  ]
  const rest = problems.length - mostShown
  output.result({ ...verdict, bad_lines: bad.length, torn, unknown, sound: isSound }, [
    facts.join(', '),
    ...problems.slice(0, mostShown).map((problem) => `  ${problem}`),
    ...(rest > 0 ? [`  and ${rest} more`] : []),
  ])
  return isSound ? exitCodes.ok : exitCodes.tasksFailed
}
