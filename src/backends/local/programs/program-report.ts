/** Turns what a launcher reports about a program into the report of its task. */

import { TimeoutError } from '../../../foundation/errors.ts'
import { ExecutableFailedError } from '../../../foundation/task-errors.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AttemptFacts, Job, TaskReport } from '../../backend.ts'
import type { ProgramEnd } from './protocol.ts'

const memoryHint =
  'Often the system was out of memory: ask for more, or give it less to do at once.'
const tailBytes = 2048
const longestName = 200
/** What an error keeps: more than an event does, so that a stack trace fits. */
const errorTailBytes = 16_384

/** `cancelReason` says why it was canceled, if it was. */
export function toEndReport(
  job: Job,
  end: ProgramEnd,
  context: { at: Moment; workerId: string; cancelReason: string | null },
): TaskReport {
  const { at } = context
  const facts = factsOf(end, context.workerId)
  if (end.stoppedBy === 'cancel') {
    return { kind: 'cancel', at, reason: context.cancelReason ?? 'canceled', facts }
  }
  if (end.stoppedBy === 'timeout') {
    const error = new TimeoutError(
      `${nameOf(job)} ran longer than ${job.spec.timeoutSeconds} s and was stopped`,
    )
    return { kind: 'fail', at, error, facts: { ...facts, ...tailsOf(end) } }
  }
  if (end.exitCode === 0) {
    const value = { stdout: end.stdout, stderr: end.stderr, exitCode: 0 }
    return { kind: 'complete', at, value, facts }
  }
  return { kind: 'fail', at, error: toFailure(job, end), facts: { ...facts, ...tailsOf(end) } }
}

function toFailure(job: Job, { exitCode, signal, stderr }: ProgramEnd): ExecutableFailedError {
  const details = { uid: job.uid, exitCode, signal, stderr: tailOf(stderr, errorTailBytes) }
  if (signal === null) {
    return new ExecutableFailedError(`${nameOf(job)} exited with code ${exitCode}`, details)
  }
  const isMemory = signal === 'SIGKILL'
  const message = `${nameOf(job)} was killed by ${signal}${isMemory ? ': often out of memory' : ''}`
  return new ExecutableFailedError(message, {
    ...details,
    code: 'ProcessSignalError',
    ...(isMemory ? { hint: memoryHint } : {}),
  })
}

function nameOf({ spec: { executable: name } }: Job): string {
  return name.length > longestName ? `${name.slice(0, longestName)}…` : name
}

function factsOf(end: ProgramEnd, workerId: string): AttemptFacts {
  const { cpuSeconds, peakMemoryBytes, exitCode, signal } = end
  return {
    workerId,
    ...(cpuSeconds === undefined ? {} : { cpuSeconds }),
    ...(peakMemoryBytes === undefined ? {} : { peakMemoryBytes }),
    ...(exitCode === null ? {} : { exitCode }),
    ...(signal === null ? {} : { signal }),
  }
}

const tailsOf = ({ stdout, stderr }: ProgramEnd): AttemptFacts => ({
  stdoutTail: tailOf(stdout, tailBytes),
  stderrTail: tailOf(stderr, tailBytes),
})

/** The last bytes of a text, without a character that is cut. */
function tailOf(text: string, limit: number): string {
  const bytes = Buffer.from(text.slice(-limit))
  if (bytes.length <= limit) return bytes.toString()
  let start = bytes.length - limit
  while (((bytes[start] ?? 0) & 0xc0) === 0x80) start++
  return bytes.toString('utf8', start)
}
