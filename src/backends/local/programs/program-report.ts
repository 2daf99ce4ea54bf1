/** Converts a launcher's report about a program to the last report of its task. */

import { TimeoutError } from '../../../foundation/errors.ts'
import { definedFields } from '../../../foundation/options.ts'
import { ExecutableFailedError } from '../../../foundation/task-errors.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AttemptFacts, Job, OutputFiles, TaskReport } from '../../backend.ts'
import type { ProgramResult } from './protocol.ts'

const memoryHint =
  'Often memory ran out: ask for more (`resources.memoryMb`), or run fewer programs at once.'
const tailBytes = 2048
const maxNameLength = 200
/** The length of the tail in errors. It is larger than in events, so that a stack trace fits. */
const errorTailBytes = 16_384

/** Creates the last report of a task. `cancelReason` is `null` if the task was not canceled. */
export function toEndReport(
  job: Job,
  end: ProgramResult,
  context: { at: Moment; workerId: string; cancelReason: string | null; files: OutputFiles },
): TaskReport {
  const { at } = context
  const facts = toFacts(end, context.workerId, context.files)
  if (end.stoppedBy === 'cancel') {
    const reason = context.cancelReason ?? 'canceled'
    return { kind: 'cancel', at, reason, facts: { ...facts, ...toOutput(end) } }
  }
  if (end.stoppedBy === 'timeout') {
    const error = new TimeoutError(
      `${shortName(job)} ran longer than ${job.spec.timeoutSeconds} s and was stopped`,
    )
    return { kind: 'fail', at, error, facts: { ...facts, ...toOutput(end), ...toTails(end) } }
  }
  if (end.exitCode === 0) {
    const value = { stdout: end.stdout, stderr: end.stderr, exitCode: 0, ...toTruncation(end) }
    return { kind: 'complete', at, value, facts }
  }
  const error = toFailure(job, end)
  return { kind: 'fail', at, error, facts: { ...facts, ...toOutput(end), ...toTails(end) } }
}

function toFailure(job: Job, end: ProgramResult): ExecutableFailedError {
  const { exitCode, signal } = end
  const [stdout, stderr] = [
    lastBytes(end.stdout, errorTailBytes),
    lastBytes(end.stderr, errorTailBytes),
  ]
  const truncation = {
    ...toTruncation(end),
    ...(stdout.length < end.stdout.length ? { stdoutTruncated: true as const } : {}),
    ...(stderr.length < end.stderr.length ? { stderrTruncated: true as const } : {}),
  }
  const details = { uid: job.uid, exitCode, signal, stdout, stderr, ...truncation }
  if (signal === null) {
    return new ExecutableFailedError(`${shortName(job)} exited with code ${exitCode}`, details)
  }
  const isMemory = signal === 'SIGKILL'
  const suffix = isMemory ? ': often out of memory' : ''
  const message = `${shortName(job)} was killed by ${signal}${suffix}`
  return new ExecutableFailedError(message, {
    ...details,
    code: 'ProcessSignalError',
    ...(isMemory ? { hint: memoryHint } : {}),
  })
}

function shortName({ spec: { executable: name } }: Job): string {
  return name.length > maxNameLength ? `${name.slice(0, maxNameLength)}…` : name
}

function toFacts(end: ProgramResult, workerId: string, files: OutputFiles): AttemptFacts {
  const { cpuSeconds, peakMemoryBytes, exitCode, signal } = end
  return {
    workerId,
    ...definedFields({
      cpuSeconds,
      peakMemoryBytes,
      exitCode: exitCode ?? undefined,
      signal: signal ?? undefined,
    }),
    ...toTruncation(end),
    ...files,
  }
}

const toTruncation = ({ stdoutTruncated, stderrTruncated }: ProgramResult) =>
  definedFields({ stdoutTruncated, stderrTruncated })

const toOutput = ({ stdout, stderr }: ProgramResult): AttemptFacts => ({ stdout, stderr })

const toTails = ({ stdout, stderr }: ProgramResult): AttemptFacts => ({
  stdoutTail: lastBytes(stdout, tailBytes),
  stderrTail: lastBytes(stderr, tailBytes),
})

/** Returns the last bytes of a text, without an incomplete character. */
function lastBytes(text: string, limit: number): string {
  const bytes = Buffer.from(text.slice(-limit))
  if (bytes.length <= limit) return bytes.toString()
  let start = bytes.length - limit
  while (((bytes[start] ?? 0) & 0xc0) === 0x80) start++
  return bytes.toString('utf8', start)
}
