/** Turns a task into a request to a launcher. */

import { resolve } from 'node:path'
import type { ProgramSpec } from '../../../tasks/spec.ts'
import type { GpuId } from '../slots.ts'
import type { ProgramRequest } from './protocol.ts'

/** Paths are made absolute here: the launcher may have been started in another folder. */
export function toProgramRequest(
  id: number,
  spec: ProgramSpec,
  gpuIds: readonly GpuId[],
): ProgramRequest {
  const { stdout, stderr } = spec.captureStdio ?? {}
  const folder = folderOf(spec)
  const absolute = (file: string | undefined): string | null =>
    file === undefined ? null : resolve(folder, file)
  return {
    id,
    executable: spec.executable,
    arguments: spec.arguments,
    cwd: folder,
    env: environmentOf(spec, gpuIds),
    stdin: spec.stdin,
    shell: spec.shell,
    stdoutFile: absolute(stdout),
    stderrFile: absolute(stderr),
    timeoutMs: spec.timeoutSeconds === null ? null : spec.timeoutSeconds * 1000,
  }
}

/** A task's own folder may be relative to the session's. */
function folderOf({ cwd, workDir }: ProgramSpec): string {
  try {
    return resolve(workDir ?? '.', cwd ?? '.')
  } catch {
    // Our own folder was removed; the start will fail and say so.
    return cwd ?? workDir ?? '.'
  }
}

function environmentOf(spec: ProgramSpec, gpuIds: readonly GpuId[]): ProgramRequest['env'] {
  if (spec.resources.gpus === 0) return spec.env
  return { ...spec.env, CUDA_VISIBLE_DEVICES: gpuIds.join(',') }
}
