/** Derives the result of an MPI task from the results of its ranks. Pure. */

import { resolve } from 'node:path'
import type { AttemptFacts, TaskReport } from '../../backends/backend.ts'
import type { CapturedOutput } from '../../backends/local/programs/protocol.ts'
import { definedFields } from '../../foundation/options.ts'
import {
  ExecutableFailedError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
} from '../../foundation/task-errors.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'

export type EndReport = Exclude<TaskReport, { kind: 'start' }>

/** The result of one rank. */
export interface RankEnd {
  readonly rank: number
  readonly node: string
  readonly report: EndReport
}

/** The outputs of all ranks, one after another. */
export function joinOutputs(ends: readonly RankEnd[]): CapturedOutput {
  const parts = ends.map(({ report }) => outputOf(report))
  return {
    stdout: parts.map(({ stdout }) => stdout).join(''),
    stderr: parts.map(({ stderr }) => stderr).join(''),
    ...(parts.some(({ stdoutTruncated }) => stdoutTruncated) ? { stdoutTruncated: true } : {}),
    ...(parts.some(({ stderrTruncated }) => stderrTruncated) ? { stderrTruncated: true } : {}),
  }
}

function outputOf(report: EndReport): CapturedOutput {
  if (report.kind === 'complete') return report.value as CapturedOutput
  const { stdout = '', stderr = '', stdoutTruncated, stderrTruncated } = report.facts ?? {}
  return { stdout, stderr, ...definedFields({ stdoutTruncated, stderrTruncated }) }
}

/**
 * The resources that all ranks used together. File names keep `%r`, the placeholder for the rank.
 */
export function joinFacts(ends: readonly RankEnd[], spec: ProgramSpec): AttemptFacts {
  const all = ends.map(({ report }) => report.facts)
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
 * The rank that failed first, because others may have failed as a consequence. `stepCode` is the
 * exit code of the step, which a call of `MPI_Abort` sets.
 */
export function firstFailure(ends: readonly RankEnd[], stepCode: number | null): RankEnd | null {
  const all = ends.filter(({ report }) => report.kind === 'fail')
  const aborted = all.filter(({ report }) => report.facts?.exitCode === stepCode)
  const failed = aborted.length > 0 ? aborted : all
  const timeOf = ({ report }: RankEnd): number => report.at?.monotonicMs ?? Infinity
  return failed.toSorted((a, b) => timeOf(a) - timeOf(b) || a.rank - b.rank)[0] ?? null
}

/** The error of the task, based on the first rank that failed. */
export function toRankError(
  { rank, node, report }: RankEnd,
  { uid, program, hasBegun }: { uid: string; program: string; hasBegun: boolean },
): unknown {
  if (report.kind !== 'fail') return null
  const { error } = report
  if (!(error instanceof ExecutableFailedError)) return error
  const { exitCode, signal, stdout, stderr, stdoutTruncated, stderrTruncated } = error
  if (!hasBegun && exitCode === 127) {
    return new ExecutableNotFoundError(`${program} was not found on node ${node}`)
  }
  if (!hasBegun && exitCode === 126) {
    return new ExecutableNotPermittedError(`${program} may not be executed on node ${node}`)
  }
  const how = signal === null ? `exited with code ${exitCode}` : `was killed by ${signal}`
  return new ExecutableFailedError(`rank ${rank} of ${program} on node ${node} ${how}`, {
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
