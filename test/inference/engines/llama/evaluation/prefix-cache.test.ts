import { describe, expect, it } from 'vitest'
import type {
  ChatMessage,
  GenerationInput,
  Sampling,
} from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { openEngine, storyModel, useEngine, useTinyModel } from '../open-engine.ts'

const tiny = useTinyModel()
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 8, ignoreEos: true }

interface Outcome {
  readonly text: string
  readonly promptTokens: number
  readonly cached: unknown
}

async function ask(
  engine: { generate: (...given: never[]) => Promise<void> },
  input: GenerationInput,
  sampling: Partial<Sampling> = {},
): Promise<Outcome> {
  const listener = new RecordingGeneration()
  const request = toRequest(input, { ...greedy, ...sampling })
  await engine.generate(...([[request], listener] as never[]))
  const [end] = listener.ends
  if (end?.kind !== 'done') throw new Error('it failed')
  const { promptTokens, details } = end.usage
  const counts = details?.['prompt_tokens_details'] as Record<string, unknown> | undefined
  return { text: listener.textOf(), promptTokens, cached: counts?.['cached_tokens'] }
}

describe('prefix caching', () => {
  const stories = useEngine(storyModel, { sequences: 4 })
  const text = 'Once upon a time there was a big red dog who lived in a small house'

  it('a prompt that was seen is not evaluated again, and the answer is the same', async () => {
    const first = await ask(stories(), { kind: 'text', text })
    expect(first.cached).toBe(0)
    const again = await ask(stories(), { kind: 'text', text })
    expect(again).toEqual({ ...first, cached: first.promptTokens - 1 })
    const longer = await ask(stories(), { kind: 'text', text: `${text}${first.text} and` })
    // All but the last token of the answer, which was never evaluated, or is another one now.
    expect(longer.cached).toBeGreaterThanOrEqual(first.promptTokens + 6)
    const other = await ask(stories(), { kind: 'text', text: `${text.slice(0, -6)} garden` })
    expect(other.cached).toBeLessThan(first.promptTokens)
    expect(other.cached).toBeGreaterThan(8)
    const fresh = await openEngine(storyModel(), { sequences: 1 })
    const garden = await ask(fresh, { kind: 'text', text: `${text.slice(0, -6)} garden` })
    expect(other.text).toBe(garden.text)
  })

  it('several conversations keep their own slots', async () => {
    const begin = (name: string) => `${name} went to the park to play with the ball and a dog.`
    for (const name of ['Tom', 'Sue', 'Ben'])
      await ask(stories(), { kind: 'text', text: begin(name) })
    for (const name of ['Tom', 'Sue', 'Ben']) {
      const { cached, promptTokens } = await ask(stories(), { kind: 'text', text: begin(name) })
      expect(cached).toBe(promptTokens - 1)
    }
  })

  it('the log probabilities of a prompt are computed again', async () => {
    const sampling = { echo: true, logprobs: 1 }
    await ask(stories(), { kind: 'text', text }, sampling)
    const { cached } = await ask(stories(), { kind: 'text', text }, sampling)
    expect(cached).toBe(0)
  })
})

describe('prefix caching of a chat', () => {
  it('turn 10 costs its new tokens only', async () => {
    const engine = await openEngine(tiny.path, { sequences: 2 })
    const messages: ChatMessage[] = [{ role: 'system', content: 'Be kind.' }]
    let known = 0
    for (let turn = 1; turn <= 10; turn++) {
      messages.push({ role: 'user', content: `Question ${turn}` })
      const answer = await ask(engine, { kind: 'chat', messages: [...messages] })
      const cached = Number(answer.cached)
      // The template, the question, and what of the last answer is written in other tokens.
      expect(answer.promptTokens - cached, `turn ${turn}`).toBeLessThanOrEqual(40)
      expect(cached).toBeGreaterThanOrEqual(known)
      known = answer.promptTokens - 1
      messages.push({ role: 'assistant', content: answer.text })
    }
    expect(known).toBeGreaterThan(150)
  })
})
