import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import type { InferenceEngine } from '../../../../../src/inference/generation/inference-engine.ts'
import {
  findTuningFile,
  writeTuningFile,
} from '../../../../../src/inference/engines/llama/tuning/tuning-file.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { openEngine, storyModel } from '../open-engine.ts'

const fixed = { threads: 1, flashAttention: 'auto', batchSize: 512 } as const
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 12, ignoreEos: true }

/** The remembered measurements of a model to which both kinds of context belong. */
async function rememberBoth(modelPath: string): Promise<string> {
  const cacheDir = mkdtempSync(join(tmpdir(), 'tutti-both-'))
  onTestFinished(() => rmSync(cacheDir, { recursive: true, force: true }))
  const attention = { plain: { many: 3, chat: 1 }, flash: { many: 1, chat: 3 } }
  for (const build of ['prebuilt', 'localBuild']) {
    const key = { modelPath, fixed, maxThreads: 1, build }
    const path = await findTuningFile(join(cacheDir, 'tuning'), key)
    await writeTuningFile(path, { threads: [], attention, prompts: [] })
  }
  return cacheDir
}

async function ask(engine: InferenceEngine, texts: readonly string[]): Promise<string[]> {
  const listeners = await Promise.all(
    texts.map(async (text, at) => {
      const listener = new RecordingGeneration()
      const request = toRequest({ kind: 'text', text }, greedy, { id: String(at) })
      await engine.generate([request], listener)
      expect(listener.ends).toMatchObject([{ kind: 'done' }])
      return listener
    }),
  )
  return listeners.map((listener) => listener.textOf())
}

it('short and long prompts run together, each in the context that suits it', async () => {
  const model = storyModel()
  const sentence = 'Once upon a time there was a red ball that was as large as the sun. '
  const short = ['Once upon a time', 'Tom and Sue', 'A dog'].map((text) => `${text} went home.`)
  const long = ['Lily', 'Ben', 'Max'].map((name) => `${sentence.repeat(8)}${name} saw it.`)
  const options = { sequences: 6, threads: 1, batchSize: 512 }
  const cacheDir = await rememberBoth(model)
  const both = await openEngine(model, { ...options, flashAttention: 'auto', cacheDir })
  expect((await both.start()).tuning).toContain('in a second context of')
  const answers = await ask(both, [...short, ...long])
  const flash = await openEngine(model, { ...options, flashAttention: true })
  expect(answers.slice(0, 3)).toEqual(await ask(flash, short))
  const plain = await openEngine(model, { ...options, flashAttention: false })
  expect(answers.slice(3)).toEqual(await ask(plain, long))
})
