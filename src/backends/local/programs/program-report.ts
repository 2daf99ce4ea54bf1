/** Converts a launcher's report about a program to the report of its task. */

import { TimeoutError } from '../../../foundation/errors.ts'
import { definedFields } from '../../../foundation/options.ts'
import { ExecutableFailedError } from '../../../foundation/task-errors.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AttemptFacts, Job, OutputFiles, TaskReport } from '../../backend.ts'
import type { ProgramEnd } from './protocol.ts'

const memoryHint =
  'Often memory ran out: ask for more (`resources.memoryMb`), or run fewer programs at once.'
const tailBytes = 2048
const maxNameLength = 200
/** More than an event keeps, so that a stack trace fits into the error. */
const errorTailBytes = 16_384

/** `cancelReason` is `null` if the task was not canceled. */
export function toEndReport(
  job: Job,
  end: ProgramEnd,
  context: { at: Moment; workerId: string; cancelReason: string | null; files: OutputFiles },
): TaskReport {
  const { at } = context
  const facts = factsOf(end, context.workerId, context.files)
  if (end.stoppedBy === 'cancel') {
    const reason = context.cancelReason ?? 'canceled'
    return { kind: 'cancel', at, reason, facts: { ...facts, ...outputOf(end) } }
  }
  if (end.stoppedBy === 'timeout') {
    const error = new TimeoutError(
      `${nameOf(job)} ran longer than ${job.spec.timeoutSeconds} s and was stopped`,
    )
    return { kind: 'fail', at, error, facts: { ...facts, ...outputOf(end), ...tailsOf(end) } }
  }
  if (end.exitCode === 0) {
    const value = { stdout: end.stdout, stderr: end.stderr, exitCode: 0, ...truncationOf(end) }
    return { kind: 'complete', at, value, facts }
  }
  const error = toFailure(job, end)
  return { kind: 'fail', at, error, facts: { ...facts, ...outputOf(end), ...tailsOf(end) } }
}

function toFailure(job: Job, end: ProgramEnd): ExecutableFailedError {
  const { exitCode, signal } = end
  const [stdout, stderr] = [tailOf(end.stdout, errorTailBytes), tailOf(end.stderr, errorTailBytes)]
  const truncation = {
    ...truncationOf(end),
    ...(stdout.length < end.stdout.length ? { stdoutTruncated: true as const } : {}),
    ...(stderr.length < end.stderr.length ? { stderrTruncated: true as const } : {}),
  }
  const details = { uid: job.uid, exitCode, signal, stdout, stderr, ...truncation }
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
  return name.length > maxNameLength ? `${name.slice(0, maxNameLength)}…` : name
}

function factsOf(end: ProgramEnd, workerId: string, files: OutputFiles): AttemptFacts {
  const { cpuSeconds, peakMemoryBytes, exitCode, signal } = end
  return {
    workerId,
    ...definedFields({
      cpuSeconds,
      peakMemoryBytes,
      exitCode: exitCode ?? undefined,
      signal: signal ?? undefined,
    }),
    ...truncationOf(end),
    ...files,
  }
}

const truncationOf = ({ stdoutTruncated, stderrTruncated }: ProgramEnd) =>
  definedFields({ stdoutTruncated, stderrTruncated })

const outputOf = ({ stdout, stderr }: ProgramEnd): AttemptFacts => ({ stdout, stderr })

const tailsOf = ({ stdout, stderr }: ProgramEnd): AttemptFacts => ({
  stdoutTail: tailOf(stdout, tailBytes),
  stderrTail: tailOf(stderr, tailBytes),
})

/** The last bytes of a text, without an incomplete character. */
function tailOf(text: string, limit: number): string {
  const bytes = Buffer.from(text.slice(-limit))
  if (bytes.length <= limit) return bytes.toString()
  let start = bytes.length - limit
  while (((bytes[start] ?? 0) & 0xc0) === 0x80) start++
  return bytes.toString('utf8', start)
}
