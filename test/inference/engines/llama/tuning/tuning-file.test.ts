import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import {
  findTuningFile,
  readTuningFile,
  type TuningKey,
  writeTuningFile,
} from '../../../../../src/inference/engines/llama/tuning/tuning-file.ts'
import type { Measurements } from '../../../../../src/inference/engines/llama/tuning/tuning.ts'

const measured: Measurements = {
  threads: [{ threads: 2, one: 1.5, many: null }],
  attention: null,
  prompts: [{ tokens: 128, ms: 0.25 }],
}

async function useFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tutti-tuning-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

const keyOf = (modelPath: string): TuningKey => ({
  modelPath,
  fixed: { threads: null, flashAttention: 'auto', batchSize: null },
  maxThreads: 2,
  build: 'prebuilt',
})

it('measurements are remembered in one file, and a damaged one is not read', async () => {
  const folder = await useFolder()
  const path = join(folder, 'tuning', 'a.tuning')
  expect(readTuningFile(path)).toBeNull()
  await writeTuningFile(path, measured)
  expect(readTuningFile(path)).toEqual(measured)
  expect(await readdir(join(folder, 'tuning'))).toEqual(['a.tuning'])
  const text = await readFile(path, 'utf8')
  for (const damaged of ['', '{}', text.slice(0, 80), text.replace('1.5', '9.5')]) {
    await writeFile(path, damaged)
    expect(readTuningFile(path)).toBeNull()
  }
})

it('a folder that cannot be written is no error', async () => {
  const folder = await useFolder()
  await writeFile(join(folder, 'tuning'), '')
  const path = join(folder, 'tuning', 'a.tuning')
  await writeTuningFile(path, measured)
  expect(readTuningFile(path)).toBeNull()
})

it('the file depends on the model’s size, time and head, and on the settings', async () => {
  const folder = await useFolder()
  const modelPath = join(folder, 'model.gguf')
  const write = async (text: string, seconds: number): Promise<string> => {
    await writeFile(modelPath, text)
    await utimes(modelPath, seconds, seconds)
    return findTuningFile(folder, keyOf(modelPath))
  }
  const first = await write('GGUF one', 1000)
  expect(await write('GGUF one', 1000)).toBe(first)
  const key = keyOf(modelPath)
  const others = [
    await write('GGUF two', 1000),
    await write('GGUF one', 2000),
    await write('GGUF one.', 1000),
    await findTuningFile(folder, { ...key, maxThreads: 3 }),
    await findTuningFile(folder, { ...key, build: 'localBuild' }),
    await findTuningFile(folder, { ...key, fixed: { ...key.fixed, threads: 1 } }),
  ]
  expect(new Set([first, ...others]).size).toBe(7)
})
