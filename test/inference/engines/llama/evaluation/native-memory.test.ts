import { readFileSync } from 'node:fs'
import { GgmlType, LlamaModel } from 'node-llama-cpp'
import { expect, it, vi } from 'vitest'
import type { LoadRequest } from '../../../../../src/inference/engines/llama/protocol.ts'
import type { OutputFormat } from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { modelProcesses } from '../model-processes.ts'
import { loadStorySlot, openEngine, storyModel } from '../open-engine.ts'
import {
  chooseCpuAttention,
  readCpuFlags,
} from '../../../../../src/inference/engines/llama/evaluation/cpu-attention.ts'

const schema = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', maximum: 99 } },
  required: ['name', 'age'],
  additionalProperties: false,
}
const format = { kind: 'json_schema', schema } satisfies OutputFormat

/** A slot, and the library's own context of it. */
async function loadWithContext(order: Partial<LoadRequest> = {}) {
  const create = vi.spyOn(LlamaModel.prototype, 'createContext')
  const loaded = await loadStorySlot({ batchSize: 64, contextLength: 128, ...order })
  const context = await create.mock.results[0]?.value
  create.mockRestore()
  if (context === undefined) throw new Error('no context')
  return { ...loaded, context }
}

it('an answer by a schema has no native state', async () => {
  const { slot, vocabulary, createGrammar, greedy, context } = await loadWithContext()
  const { _bindings: bindings } = context.model.llama as unknown as {
    readonly _bindings: { AddonGrammarEvaluationState: new (...given: unknown[]) => object }
  }
  let created = 0
  bindings.AddonGrammarEvaluationState = class extends bindings.AddonGrammarEvaluationState {
    constructor(...given: unknown[]) {
      super(...given)
      created++
    }
  }
  for (let answers = 0; answers < 3; answers++) {
    await slot.truncate(0)
    const stream = slot.generate([1], { ...greedy, grammar: createGrammar(format) })
    let length = 0
    while (!vocabulary.isEnd((await stream.next()).token)) length++
    await stream.close()
    expect(length).toBeGreaterThan(5)
  }
  expect(created).toBe(0)
})

it("the threads of a model's process share one heap", async () => {
  const engine = await openEngine(storyModel(), { contextLength: 128 })
  const requests = Array.from({ length: 8 }, (_, at) =>
    toRequest({ kind: 'text', text: 'Once' }, { maxTokens: 8, logprobs: 2 }, { id: `${at}` }),
  )
  await engine.generate(requests, new RecordingGeneration())
  const pids = modelProcesses(process.pid)
  expect(pids.length).toBe(1)
  expect(pids.flatMap(furtherHeaps)).toEqual([])
  expect(furtherHeaps(process.pid).length).toBeGreaterThan(0)
})

/** Heaps of glibc besides the first: each reserves 64 MB at a multiple of 64 MB. */
function furtherHeaps(pid: number): string[] {
  const maps = readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n').map(toMapping)
  return maps.flatMap((used, at) => {
    const rest = maps[at + 1]
    const isWhole = used.from % heapBytes === 0 && rest?.to === used.from + heapBytes
    return used.rights === 'rw-p' && isWhole && rest.rights === '---p' ? [used.line] : []
  })
}

const heapBytes = 64 * 1024 * 1024

function toMapping(line: string) {
  const [, from = '', to = '', rights = ''] = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/.exec(line) ?? []
  return { from: Number.parseInt(from, 16), to: Number.parseInt(to, 16), rights, line }
}

/** For the model's heads of 48 numbers on this processor. */
const formatHere = (usesFlash: boolean) =>
  chooseCpuAttention({ attention: { key_length: 48 } }, readCpuFlags(), usesFlash)
    .experimentalKvCacheKeyType

it('keys are in the format that is the fastest on the processor', async () => {
  const { context } = await loadWithContext()
  expect(context.flashAttention).toBe(false)
  expect(context.kvCacheKeyType).toBe(GgmlType[formatHere(false)])
  expect(context.kvCacheValueType).toBe(GgmlType.F16)
})

it('values are in that format with flash attention, and the text is the same', async () => {
  const [plain, flash] = [
    await loadWithContext(),
    await loadWithContext({ flashAttention: true }),
  ] as const
  expect(flash.context.flashAttention).toBe(true)
  expect(flash.context.kvCacheKeyType).toBe(GgmlType[formatHere(true)])
  expect(flash.context.kvCacheValueType).toBe(GgmlType[formatHere(true)])
  const tellStory = async ({ slot, greedy, vocabulary }: typeof plain): Promise<number[]> => {
    const stream = slot.generate(
      vocabulary.tokenize('Once upon a time', { special: false, inner: false }),
      greedy,
    )
    const tokens: number[] = []
    while (tokens.length < 16) tokens.push((await stream.next()).token)
    await stream.close()
    return tokens
  }
  expect(await tellStory(flash)).toEqual(await tellStory(plain))
})
