import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { GenerationInput } from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { writeTinyModel } from '../../tiny-model.ts'
import { createEngine, useEngine, useTinyModel } from '../open-engine.ts'

/** Opens the reasoning itself, unless a variable prevents it. */
const tiny = useTinyModel(
  '{{ messages[0].content }}{% if enable_thinking is not defined or enable_thinking %}<think>\n' +
    '{% else %}<think></think>{% endif %}',
)
const engine = useEngine(() => tiny.path, { sequences: 2 })

async function ask(more: Partial<Extract<GenerationInput, { kind: 'chat' }>>, sampling = {}) {
  const listener = new RecordingGeneration()
  const messages = [{ role: 'user', content: 'hi' }] as const
  const input = { kind: 'chat', messages, ...more } as const
  const few = { maxTokens: 6, ignoreEos: true, seed: 1, ...sampling }
  await engine().generate([toRequest(input, few)], listener)
  const thoughts = listener.deltas.map(({ reasoning = '' }) => reasoning)
  return { text: listener.textOf(), reasoning: thoughts.join(''), end: listener.ends[0] }
}

it.each([
  ['{{ messages[0].content }}', false],
  ["{{ messages[0].content }}{{ messages[0]['reasoning_content'] }}", true],
  ['{{ messages[0].content }}{{ messages[0].reasoning_content }}', true],
])('whether thoughts of earlier answers are read: %s', async (template, isRead) => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-thoughts-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const reading = createEngine(writeTinyModel(folder, template))
  onTestFinished(() => reading.close())
  const { fields } = await reading.start()
  expect(fields).toContain('chat_template_kwargs')
  expect(fields?.includes('messages.reasoning_content')).toBe(isRead)
})

describe('llama engine: a template that opens the reasoning', () => {
  it('the answer begins with reasoning', async () => {
    const { text, reasoning } = await ask({})
    expect(text).toBe('')
    expect(reasoning).not.toBe('')
  })

  it.each([{ templateArguments: { enable_thinking: false } }, { reasoningEffort: 'none' }])(
    '%j switches it off',
    async (more) => {
      const { text, reasoning } = await ask(more)
      expect(reasoning).toBe('')
      expect(text).not.toBe('')
    },
  )

  it('an effort that nobody knows is refused instead of read as thinking', async () => {
    const { end } = await ask({ reasoningEffort: 'banana' })
    const known = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh'"
    const message = `Invalid value: 'banana'. Supported values are: ${known}.`
    const refusal = { status: 400, param: 'reasoning_effort', code: 'unsupported_value' }
    expect(end).toMatchObject({ kind: 'failed', error: { message, refusal } })
  })

  it('an answer by a schema has none', async () => {
    const format = { kind: 'json_schema', schema: { const: 'x' } } as const
    const found = await ask({}, { format, maxTokens: 20, ignoreEos: false })
    expect(found).toMatchObject({ text: '"x"', reasoning: '', end: { finishReason: 'stop' } })
  })

  it('a variable that the template does not read is refused by its name', async () => {
    const { end } = await ask({ templateArguments: { think_harder: true } })
    expect(end).toMatchObject({
      kind: 'failed',
      error: {
        refusal: {
          status: 400,
          param: 'chat_template_kwargs.think_harder',
          code: 'unsupported_parameter',
        },
      },
    })
    // Words of the text, members of messages and functions are no variables.
    for (const name of ['think', 'content', 'raise_exception']) {
      const { end: other } = await ask({ templateArguments: { [name]: true } })
      const param = `chat_template_kwargs.${name}`
      expect(other).toMatchObject({ kind: 'failed', error: { refusal: { param } } })
    }
    const reserved = await ask({ templateArguments: { messages: [] } })
    expect(reserved.end).toMatchObject({ kind: 'failed' })
  })
})
