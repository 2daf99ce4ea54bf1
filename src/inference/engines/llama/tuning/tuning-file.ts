/** Remembers measurements in one file per model, machine and settings. */

import { createHash } from 'node:crypto'
import { mkdir, rename, stat, writeFile } from 'node:fs/promises'
import { arch, availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { tryRead } from '../../../../foundation/errors.ts'
import { openRegularFile, readTextFileSync } from '../../../../foundation/regular-file.ts'
import { llamaVersion, version } from '../../../../foundation/version.ts'
import type { FixedSettings, Measurements } from './tuning.ts'

/**
 * The number of bytes at the beginning of a model file that are hashed. They contain the sizes of
 * the model.
 */
const headBytes = 262_144

const hash = (content: Uint8Array | string): string =>
  createHash('sha256').update(content).digest('hex')

export interface TuningKey {
  readonly modelPath: string
  readonly fixed: FixedSettings
  readonly maxThreads: number
  /** `prebuilt`, or how the library was built here. */
  readonly build: string
}

/** The name of the file depends on everything that can change the times or their form. */
export async function findTuningFile(folder: string, key: TuningKey): Promise<string> {
  const { modelPath, fixed, maxThreads, build } = key
  const { size, mtimeMs } = await stat(modelPath)
  await using file = await openRegularFile(modelPath)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(headBytes), 0, headBytes, 0)
  const model = [size, mtimeMs, hash(buffer.subarray(0, bytesRead))]
  const machine = [arch(), cpus()[0]?.model, availableParallelism(), llamaVersion, version, build]
  const { threads, flashAttention, batchSize } = fixed
  const settings = [threads, flashAttention, batchSize, maxThreads]
  const name = hash(JSON.stringify([model, machine, settings])).slice(0, 32)
  return join(folder, `${name}.tuning`)
}

/** Returns `null` if there is no such file, or if its checksum is wrong. */
export function readTuningFile(path: string): Measurements | null {
  const text = tryRead(() => readTextFileSync(path)) ?? ''
  const [checksum, json] = text.split('\n')
  if (json === undefined || checksum !== hash(json)) return null
  return JSON.parse(json) as Measurements
}

/** Never rejects: if the folder cannot be written, the next start measures again. */
export async function writeTuningFile(path: string, measured: Measurements): Promise<void> {
  const json = JSON.stringify(measured)
  const draft = `${path}.${process.pid}`
  try {
    await mkdir(join(path, '..'), { recursive: true })
    await writeFile(draft, `${hash(json)}\n${json}\n`)
    await rename(draft, path)
  } catch {
    // The measurements are used without being remembered.
  }
}
