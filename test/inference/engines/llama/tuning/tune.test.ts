import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { tune, type TuneOptions } from '../../../../../src/inference/engines/llama/tuning/tune.ts'
import {
  type FixedSettings,
  nothingMeasured,
} from '../../../../../src/inference/engines/llama/tuning/tuning.ts'
import { ManualClock } from '../../../../../src/testing/manual-clock.ts'
import { openEngine, useTinyModel } from '../open-engine.ts'

const tiny = useTinyModel()
const free: FixedSettings = { threads: null, flashAttention: 'auto', batchSize: null }

/** A folder with a model, and a measurement that counts its calls and takes 30 ms. */
function useStage(fixed: FixedSettings = free) {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-tune-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const modelPath = join(folder, 'model.gguf')
  writeFileSync(modelPath, 'GGUF')
  const clock = new ManualClock()
  const counts = { measured: 0 }
  const options: TuneOptions = {
    key: { modelPath, fixed, maxThreads: 2, build: 'prebuilt' },
    folder: join(folder, 'tuning'),
    isKept: () => true,
    facts: { cacheBytes: null, busyCores: 0 },
    clock,
    async measure() {
      counts.measured++
      await clock.advance(30)
      return { ...nothingMeasured, threads: [{ threads: 1, one: 4, many: null }] }
    },
  }
  return { options, counts }
}

const settings =
  '1 thread (tokens/s: 250 with 1 thread); flash attention off; up to 512 prompt tokens per step'

it('settings are measured once, and remembered at the next start', async () => {
  const { options, counts } = useStage()
  const first = await tune(options)
  expect(first.report).toBe(`${settings} (measured in 30 ms)`)
  const second = await tune(options)
  expect(second.report).toBe(`${settings} (measured at an earlier start)`)
  expect(second.tuning).toEqual(first.tuning)
  expect(counts.measured).toBe(1)
})

it('settings of a damaged file are measured again', async () => {
  const { options, counts } = useStage()
  await tune(options)
  const [name = ''] = readdirSync(options.folder)
  writeFileSync(join(options.folder, name), 'damaged')
  expect((await tune(options)).report).toContain('measured in 30 ms')
  expect(counts.measured).toBe(2)
})

it('settings of a busy machine are not remembered', async () => {
  const { options, counts } = useStage()
  await tune({ ...options, isKept: () => false })
  expect((await tune(options)).report).toContain('measured in 30 ms')
  expect(counts.measured).toBe(2)
})

it('settings that are all fixed are not measured', async () => {
  const { options, counts } = useStage({ threads: 1, flashAttention: true, batchSize: 64 })
  const { tuning, report } = await tune(options)
  expect(tuning).toEqual({ threads: { few: 1, many: 1 }, attention: 'flash', batchSize: 64 })
  expect(report).toBeNull()
  expect(counts.measured).toBe(0)
})

it('an engine reports what it measured in one line', async () => {
  const lines: string[] = []
  const cacheDir = mkdtempSync(join(tmpdir(), 'tutti-tune-'))
  onTestFinished(() => rmSync(cacheDir, { recursive: true, force: true }))
  const flexible = { threads: null, flashAttention: 'auto', batchSize: null } as const
  const onProgress = (line: string): void => void lines.push(line)
  const engine = await openEngine(tiny.path, { ...flexible, cacheDir, sequences: 2, onProgress })
  const { tuning } = await engine.start()
  expect(tuning).toMatch(/^\d thread.*; flash attention (?:on|off|for) .* \(measured in \d+ ms\)$/)
  expect(lines).toContain(`tuned ${tiny.path.split('/').at(-1)}: ${tuning}`)
  const fixed = await openEngine(tiny.path, { cacheDir })
  expect((await fixed.start()).tuning).toBeUndefined()
})
