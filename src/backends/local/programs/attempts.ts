/** One attempt of a program in a launcher pool, and its request to a launcher. */

import { resolve } from 'node:path'
import { definedFields } from '../../../foundation/options.ts'
import type { ProgramSpec } from '../../../tasks/spec.ts'
import type { Job, OutputFiles } from '../../backend.ts'
import type { Batch } from '../executor.ts'
import { gpuVariables } from '../gpu-variables.ts'
import type { GpuId } from '../slots.ts'
import type { Launcher } from './launcher-fleet.ts'
import type { ProgramRequest } from './protocol.ts'

export interface Attempt {
  readonly id: number
  readonly job: Job
  readonly batch: Batch
  readonly spec: ProgramSpec
  launcher: Launcher | null
  /** The process id; 0 until the start of the program is reported. */
  pid: number
  cancelReason: string | null
  /** The output files, which are set when the request is sent to a launcher. */
  files: OutputFiles
}

/** Creates an attempt. A batch of programs has a single job. */
export function newAttempt(id: number, batch: Batch): Attempt {
  const [job] = batch.jobs
  if (job?.spec.kind !== 'program') throw new TypeError('the batch has no executable')
  const { spec } = job
  return { id, job, batch, spec, launcher: null, pid: 0, cancelReason: null, files: {} }
}

/** Creates the request. Its paths are absolute: the launcher may have another working directory. */
export function toProgramRequest(attempt: Attempt, workDir: string | null): ProgramRequest {
  const { id, spec, batch, job } = attempt
  const folder = resolveFolder(spec, workDir)
  // If a spec of another version lacks this field, the task must fail, so this line throws.
  const { stdout, stderr } = spec.captureStdio === null ? {} : spec.captureStdio
  attempt.files = definedFields({
    stdoutPath: stdout && resolve(folder, stdout),
    stderrPath: stderr && resolve(folder, stderr),
  })
  const { stdin } = spec
  return {
    id,
    executable: spec.executable,
    arguments: spec.arguments,
    cwd: folder,
    env: toEnvironment(spec, batch.gpuIds),
    cores: spec.namedCores,
    stdin:
      stdin === null || typeof stdin === 'string' ? stdin : Buffer.from(stdin.base64, 'base64'),
    shell: spec.shell,
    stdoutFile: attempt.files.stdoutPath ?? null,
    stderrFile: attempt.files.stderrPath ?? null,
    timeoutMs: spec.timeoutSeconds === null ? null : spec.timeoutSeconds * 1000,
    killBackground: spec.killBackground,
    isFollowed: spec.isFollowed ?? false,
    owner: job.sessionId,
  }
}

/** Resolves `cwd` against the folder of the session, else of the backend, else of this process. */
function resolveFolder({ cwd, workDir }: ProgramSpec, backendDir: string | null): string {
  try {
    return resolve(workDir ?? backendDir ?? '.', cwd ?? '.')
  } catch {
    // The current directory was removed. The start of the program fails and says so.
    return cwd ?? workDir ?? backendDir ?? '.'
  }
}

function toEnvironment(spec: ProgramSpec, gpuIds: readonly GpuId[]): ProgramRequest['env'] {
  if (spec.resources.gpus === 0) return spec.env
  const ids = gpuIds.join(',')
  return { ...spec.env, ...Object.fromEntries(gpuVariables().map((name) => [name, ids])) }
}
