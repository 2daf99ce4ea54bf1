import { describe, expect, it } from 'vitest'
import type { GenerationInput } from '../../../../src/inference/generation/inference-engine.ts'
import type {
  ChatTemplate,
  TemplateTraits,
} from '../../../../src/inference/engines/llama/templates/chat-template.ts'
import {
  promptTokens,
  renderPrompt,
} from '../../../../src/inference/engines/llama/prepared-prompt.ts'
import type { Vocabulary } from '../../../../src/inference/engines/llama/runtime.ts'

const fullTraits: TemplateTraits = {
  hasSystemRole: true,
  allowsSameRole: true,
  toolsIn: 'variable',
  rendersTools: true,
  rendersCalls: true,
  argumentsAs: 'object',
  allowsParallelCalls: true,
  callIds: 'any',
}

/** Keeps the pieces of text that it is given instead of tokens. */
function spell(input: GenerationInput, template: Partial<ChatTemplate> | null, first = false) {
  const pieces: string[] = []
  const rendered: object[] = []
  const vocabulary = {
    firstToken: first ? 7 : null,
    tokenize: (text: string, { special, inner }: { special: boolean; inner: boolean }) => {
      pieces.push(`${special ? 'special' : 'plain'}${inner ? ' inner' : ''} ${text}`)
      return [pieces.length + 6]
    },
  } as unknown as Vocabulary
  const whole: ChatTemplate | null = template && {
    source: '',
    problem: null,
    readsNames: false,
    traits: fullTraits,
    controlTexts: ['<|user|>', '</s>'],
    names: null,
    render: (given) => {
      rendered.push(given)
      return JSON.stringify(given)
    },
    ...template,
  }
  const tokens = promptTokens(renderPrompt(input, whole), vocabulary)
  return { tokens, pieces, rendered: rendered[0] }
}

const weather = { name: 'weather', description: 'Tells it', parameters: { type: 'object' } }
const user = (content: string) => ({ role: 'user', content }) as const

describe('renderPrompt', () => {
  it('a model without a template refuses variables, and ignores how much to reason', () => {
    const messages = [user('hi')]
    const param = 'chat_template_kwargs.enable_thinking'
    const templateArguments = { enable_thinking: false }
    const input = { kind: 'chat', messages, templateArguments } as const
    const reason = `this model has no chat template, which would read '${param}'`
    const message = `Unsupported parameter: ${reason}.`
    expect(() => renderPrompt(input, null)).toThrow(expect.objectContaining({ param, message }))
    const effort = { kind: 'chat', messages, reasoningEffort: 'high' } as const
    const plain = { kind: 'chat', messages } as const
    expect(renderPrompt(effort, null)).toEqual(renderPrompt(plain, null))
  })

  it('renderPrompt returns plain text unchanged', () => {
    const { pieces, tokens } = spell({ kind: 'text', text: 'a </s>' }, {})
    expect(pieces).toEqual(['plain a </s>'])
    expect(tokens).toEqual([7])
  })

  it('renderPrompt adds the start token unless the template did', () => {
    expect(spell({ kind: 'text', text: 'a' }, {}, true).tokens).toEqual([7])
    const chat = { kind: 'chat', messages: [user('a')] } as const
    const render = (): string => 'a\uFDD0b'
    expect(spell(chat, { render }, true).tokens).toEqual([7, 8])
  })

  it('renderPrompt joins messages without a template, system messages first', () => {
    const messages = [user('b'), { role: 'system', content: 'a' } as const, user('c')]
    expect(spell({ kind: 'chat', messages }, null).pieces).toEqual(['plain a\n\nb\n\nc'])
  })

  it('renderPrompt adds an answer that is continued to the prompt, with its marks split', () => {
    const messages = [user('hi'), { role: 'assistant', content: 'Once</s>' } as const]
    const chat = { kind: 'chat', messages, continuesFinalMessage: true } as const
    const render = ({ messages: given }: { messages: readonly object[] }) =>
      `${given.length} message:`
    expect(spell(chat, { render }).pieces).toEqual(['special 1 message:Once<', 'special inner /s>'])
    const opens = (): string => 'a<think>\n'
    const source = '<think></think>'
    expect(spell(chat, { render: opens, source }).pieces[0]).toBe(
      'special a<think>\n\n</think>\n\nOnce<',
    )
    expect(spell(chat, null).pieces).toEqual(['plain hi\n\nOnce</s>'])
  })

  it('renderPrompt passes messages and tools to a template in its form', () => {
    const { rendered } = spell(
      {
        kind: 'chat',
        messages: [
          user('hi'),
          {
            role: 'assistant',
            content: '',
            toolCalls: [{ id: '1', name: 'weather', arguments: '{"city":"Rome"}' }],
          },
          { role: 'tool', content: 'warm', toolCallId: '1', name: 'weather' },
        ],
        tools: [weather],
      },
      {},
    )
    expect(rendered).toEqual({
      messages: [
        { role: 'user', content: 'hi' },
        {
          role: 'assistant',
          content: '',
          tool_calls: [
            {
              id: '1',
              type: 'function',
              function: { name: 'weather', arguments: { city: 'Rome' } },
            },
          ],
        },
        { role: 'tool', content: 'warm', tool_call_id: '1', name: 'weather' },
      ],
      tools: [{ type: 'function', function: weather }],
      add_generation_prompt: true,
    })
  })

  it('renderPrompt splits text that reads like a control token, wherever it is', () => {
    const messages = [user('a</s><|user|>b\uFDD0</s>')]
    const tools = [{ name: 'x', description: '<|user|>' }]
    const { pieces } = spell({ kind: 'chat', messages, tools }, {})
    expect(pieces.length).toBe(5)
    expect(pieces[0]).toMatch(/^special .*a<$/)
    expect(pieces.slice(1)).toEqual(
      pieces.slice(1).filter((piece) => piece.startsWith('special inner')),
    )
    for (const piece of pieces) expect(piece).not.toMatch(/<\|user\|>|<\/s>/)
  })

  it('renderPrompt describes tools in words if the template does not support them', () => {
    const chat = { kind: 'chat', messages: [user('hi')], tools: [weather] } as const
    const { rendered } = spell(chat, { traits: { ...fullTraits, rendersTools: false } })
    expect(rendered).toMatchObject({
      messages: [{ role: 'system', content: expect.stringContaining('"weather"') }, user('hi')],
    })
    expect(rendered).not.toHaveProperty('tools')
    const system = { role: 'system', content: 'Be kind.' } as const
    const ruled = spell(
      { ...chat, messages: [system, user('hi')] },
      { traits: { ...fullTraits, rendersTools: false } },
    )
    expect(ruled.rendered).toMatchObject({
      messages: [{ content: expect.stringMatching(/^Be kind\.\n\nYou can call/) }, user('hi')],
    })
  })

  it('renderPrompt throws what the template raises', () => {
    const render = (): never => {
      throw new Error('roles must alternate')
    }
    const chat = { kind: 'chat', messages: [user('hi')] } as const
    expect(() => spell(chat, { render })).toThrow('roles must alternate')
  })
})
