/** Turns a task into a request to a launcher. */

import { resolve } from 'node:path'
import type { ComputeTask } from '../../../tasks/compute-task.ts'
import type { ProgramRequest } from './protocol.ts'

/** Paths are made absolute here: the launcher may have been started in another folder. */
export function toProgramRequest(
  id: number,
  task: ComputeTask<unknown>,
  gpuIds: readonly number[],
  workDir: string | undefined,
): ProgramRequest {
  const { stdout, stderr } = task.captureStdio ?? {}
  const folder = folderOf(task, workDir)
  const absolute = (file: string | undefined): string | null =>
    file === undefined ? null : resolve(folder, file)
  return {
    id,
    executable: task.executable,
    arguments: task.arguments,
    cwd: folder,
    env: environmentOf(task, gpuIds),
    stdin: task.stdin,
    shell: task.shell,
    stdoutFile: absolute(stdout),
    stderrFile: absolute(stderr),
    timeoutMs: task.timeoutSeconds === null ? null : task.timeoutSeconds * 1000,
  }
}

/** A task's own folder may be relative to the session's. */
function folderOf({ cwd }: ComputeTask<unknown>, workDir = '.'): string {
  try {
    return resolve(workDir, cwd ?? '.')
  } catch {
    // Our own folder was removed; the start will fail and say so.
    return cwd ?? workDir
  }
}

function environmentOf(
  task: ComputeTask<unknown>,
  gpuIds: readonly number[],
): ProgramRequest['env'] {
  if (task.resources.gpus === 0) return task.env
  return { ...task.env, CUDA_VISIBLE_DEVICES: gpuIds.join(',') }
}
