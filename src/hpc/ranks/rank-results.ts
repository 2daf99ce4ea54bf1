/** Derives the result of an MPI task from the results of its ranks. Pure. */

import { resolve } from 'node:path'
import type { AttemptFacts } from '../../backends/backend.ts'
import type { CapturedOutput } from '../../backends/local/programs/protocol.ts'
import type { ResultReport } from '../../cluster/wire/results.ts'
import { definedFields } from '../../foundation/options.ts'
import {
  ExecutableFailedError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
} from '../../foundation/task-errors.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'

export interface RankResult {
  readonly rank: number
  readonly node: string
  readonly report: ResultReport
}

export function joinOutputs(results: readonly RankResult[]): CapturedOutput {
  const parts = results.map(({ report }) => toOutput(report))
  return {
    stdout: parts.map(({ stdout }) => stdout).join(''),
    stderr: parts.map(({ stderr }) => stderr).join(''),
    ...(parts.some(({ stdoutTruncated }) => stdoutTruncated) ? { stdoutTruncated: true } : {}),
    ...(parts.some(({ stderrTruncated }) => stderrTruncated) ? { stderrTruncated: true } : {}),
  }
}

function toOutput(report: ResultReport): CapturedOutput {
  if (report.kind === 'complete') return report.value as CapturedOutput
  const { stdout = '', stderr = '', stdoutTruncated, stderrTruncated } = report.facts ?? {}
  return { stdout, stderr, ...definedFields({ stdoutTruncated, stderrTruncated }) }
}

/** Adds up the resources of all ranks. File names keep `%r`, the placeholder for the rank. */
export function joinFacts(results: readonly RankResult[], spec: ProgramSpec): AttemptFacts {
  const all = results.map(({ report }) => report.facts)
  const sum = (key: 'cpuSeconds' | 'peakMemoryBytes'): AttemptFacts => {
    const known = all.map((facts) => facts?.[key]).filter((one) => one !== undefined)
    return known.length === 0 ? {} : { [key]: known.reduce((total, one) => total + one, 0) }
  }
  const { captureStdio, workDir, cwd } = spec
  const toPath = (file: string): string => resolve(workDir ?? '.', cwd ?? '.', file)
  const { stdout, stderr } = captureStdio ?? {}
  return {
    ...sum('cpuSeconds'),
    ...sum('peakMemoryBytes'),
    ...(stdout === undefined ? {} : { stdoutPath: toPath(stdout) }),
    ...(stderr === undefined ? {} : { stderrPath: toPath(stderr) }),
  }
}

/**
 * Returns the rank that failed first, because others may fail as a consequence. Prefers ranks that
 * exited with `stepCode`, the exit code of the step, because `MPI_Abort` sets it.
 */
export function findFirstFailure(
  results: readonly RankResult[],
  stepCode: number | null,
): RankResult | null {
  const all = results.filter(({ report }) => report.kind === 'fail')
  const aborted = all.filter(({ report }) => report.facts?.exitCode === stepCode)
  const failed = aborted.length > 0 ? aborted : all
  const timeOf = ({ report }: RankResult): number => report.at?.monotonicMs ?? Infinity
  return failed.toSorted((a, b) => timeOf(a) - timeOf(b) || a.rank - b.rank)[0] ?? null
}

/** Converts the error of the first failed rank into the error of the task. */
export function toRankError(
  { rank, node, report }: RankResult,
  { uid, program, hasStarted }: { uid: string; program: string; hasStarted: boolean },
): unknown {
  if (report.kind !== 'fail') return null
  const { error } = report
  if (!(error instanceof ExecutableFailedError)) return error
  const { exitCode, signal, stdout, stderr, stdoutTruncated, stderrTruncated } = error
  if (!hasStarted && exitCode === 127) {
    return new ExecutableNotFoundError(`${program} was not found on node ${node}`)
  }
  if (!hasStarted && exitCode === 126) {
    return new ExecutableNotPermittedError(`${program} may not be executed on node ${node}`)
  }
  const exitText = signal === null ? `exited with code ${exitCode}` : `was killed by ${signal}`
  return new ExecutableFailedError(`rank ${rank} of ${program} on node ${node} ${exitText}`, {
    uid,
    exitCode,
    signal,
    stdout,
    stderr,
    rank,
    ...(signal === null ? {} : { code: error.code }),
    ...definedFields({ stdoutTruncated, stderrTruncated }),
  })
}
