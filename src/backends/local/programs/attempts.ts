/** One attempt of a program in a launcher pool, and its request to a launcher. */

import { resolve } from 'node:path'
import type { ProgramSpec } from '../../../tasks/spec.ts'
import type { Job, OutputFiles } from '../../backend.ts'
import type { Batch } from '../executor.ts'
import { gpuVariables } from '../gpu-variables.ts'
import type { GpuId } from '../slots.ts'
import type { Launcher } from './launcher-fleet.ts'
import type { ProgramRequest } from './protocol.ts'

/** One attempt of a task, from its assignment to its last report. */
export interface Attempt {
  readonly id: number
  readonly job: Job
  readonly batch: Batch
  readonly spec: ProgramSpec
  /** The launcher that was asked to start the program. */
  launcher: Launcher | null
  /** 0 until the program's start is reported. */
  pid: number
  cancelReason: string | null
  /** The files that take the program's output; set when the request is sent to a launcher. */
  files: OutputFiles
}

/** `id` is never reused. Launchers get batches of a single job. */
export function newAttempt(id: number, batch: Batch): Attempt {
  const [job] = batch.jobs
  if (job?.spec.kind !== 'program') throw new TypeError('the batch has no executable')
  const { spec } = job
  return { id, job, batch, spec, launcher: null, pid: 0, cancelReason: null, files: {} }
}

/** Makes paths absolute, because the launcher may have been started in another directory. */
export function toProgramRequest(attempt: Attempt, workDir: string | null): ProgramRequest {
  const { id, spec, batch, job } = attempt
  const folder = folderOf(spec, workDir)
  if (spec.captureStdio !== null) attempt.files = absoluteFiles(spec.captureStdio, folder)
  return {
    id,
    executable: spec.executable,
    arguments: spec.arguments,
    cwd: folder,
    env: environmentOf(spec, batch.gpuIds),
    cores: spec.namedCores,
    stdin: bytesOf(spec.stdin),
    shell: spec.shell,
    stdoutFile: attempt.files.stdoutPath ?? null,
    stderrFile: attempt.files.stderrPath ?? null,
    timeoutMs: spec.timeoutSeconds === null ? null : spec.timeoutSeconds * 1000,
    killBackground: spec.killBackground,
    isFollowed: spec.isFollowed ?? false,
    owner: job.sessionId,
  }
}

const absoluteFiles = (
  { stdout, stderr }: NonNullable<ProgramSpec['captureStdio']>,
  folder: string,
): OutputFiles => ({
  ...(stdout === undefined ? {} : { stdoutPath: resolve(folder, stdout) }),
  ...(stderr === undefined ? {} : { stderrPath: resolve(folder, stderr) }),
})

const bytesOf = (stdin: ProgramSpec['stdin']): string | Uint8Array | null =>
  stdin === null || typeof stdin === 'string' ? stdin : Buffer.from(stdin.base64, 'base64')

/** Resolves a task's `cwd` against the session's directory, the backend's, or the current one. */
function folderOf({ cwd, workDir }: ProgramSpec, backendDir: string | null): string {
  try {
    return resolve(workDir ?? backendDir ?? '.', cwd ?? '.')
  } catch {
    // The current directory was removed; the start will fail with an error that says so.
    return cwd ?? workDir ?? backendDir ?? '.'
  }
}

function environmentOf(spec: ProgramSpec, gpuIds: readonly GpuId[]): ProgramRequest['env'] {
  if (spec.resources.gpus === 0) return spec.env
  const ids = gpuIds.join(',')
  return { ...spec.env, ...Object.fromEntries(gpuVariables().map((name) => [name, ids])) }
}
