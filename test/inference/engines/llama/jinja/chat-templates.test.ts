import { isDeepStrictEqual } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { OutputParser } from '../../../../../src/inference/engines/llama/formats/output-parser.ts'
import { planParsing } from '../../../../../src/inference/engines/llama/formats/output-parsing.ts'
import { renderPrompt } from '../../../../../src/inference/engines/llama/prepared-prompt.ts'
import type { Vocabulary } from '../../../../../src/inference/engines/llama/runtime.ts'
import {
  type ChatTemplate,
  createChatTemplate,
} from '../../../../../src/inference/engines/llama/templates/chat-template.ts'
import { JinjaTemplate } from '../../../../../src/inference/engines/llama/jinja/template.ts'
import { TemplateError } from '../../../../../src/inference/engines/llama/jinja/limits.ts'
import type { ToolCall } from '../../../../../src/inference/generation/inference-engine.ts'
import { templateOf } from '../templates/template-of.ts'
import { readTemplates } from '../templates/bundle-templates.ts'
import { hasJinja, now, type Outcome, renderWithJinja } from './reference.ts'

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Weather of a <city> & more',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string', description: 'A "city"' },
        unit: { type: 'string', enum: ['c', 'f'] },
        days: { type: 'integer', default: 1 },
        deep: { type: 'object', properties: { x: { type: ['string', 'null'] } } },
      },
      required: ['city'],
      additionalProperties: false,
    },
  },
}
const time = {
  type: 'function',
  function: { name: 'now', description: '', parameters: { type: 'object', properties: {} } },
}
const tools = [weather, time]
const call = (id: string, name: string, args: object): object => ({
  id,
  type: 'function',
  function: { name, arguments: args },
})
const outcome = (id: string, name: string, content: string): object => ({
  role: 'tool',
  content,
  tool_call_id: id,
  name,
})
const system = { role: 'system', content: 'Be kind.' }
const user = (content: string): object => ({ role: 'user', content })
const assistant = (content: string, more: object = {}): object => ({
  role: 'assistant',
  content,
  ...more,
})

const neighbours = [
  { role: 'user', content: 'One' },
  { role: 'user', content: 'Two' },
  { role: 'assistant', content: 'Three' },
  { role: 'user', content: 'Four' },
  { role: 'user', content: 'Five' },
] as const
const ofOneRole = 'messages of one role that follow each other'

const conversations: Readonly<Record<string, object>> = {
  'one message': { messages: [user('Hello "wörld" <b> & \'x\' 🙂')] },
  'a system message and two turns': {
    messages: [system, user('One'), assistant('Two\nlines'), user('Three')],
  },
  tools: { messages: [system, user('Weather?')], tools },
  'a call and its outcome': {
    messages: [
      user('Weather?'),
      assistant('', {
        tool_calls: [
          call('abcdefgh1', 'get_weather', {
            city: 'Zürich',
            days: 2,
            deep: { x: null },
            on: true,
            f: 1.5,
          }),
        ],
      }),
      outcome('abcdefgh1', 'get_weather', '{"t": 1}'),
    ],
    tools,
  },
  'two calls at once, and another turn': {
    messages: [
      user('Weather?'),
      assistant('I look.', {
        tool_calls: [
          call('abcdefgh1', 'get_weather', { city: 'Rome' }),
          call('abcdefgh2', 'now', {}),
        ],
      }),
      outcome('abcdefgh1', 'get_weather', 'warm'),
      outcome('abcdefgh2', 'now', 'noon'),
      assistant('It is warm.'),
      user('Thanks'),
    ],
    tools,
  },
  'reasoning that is switched off': {
    messages: [
      user('One'),
      assistant('Two', { reasoning_content: 'Hm. One, then two.' }),
      user('Three'),
    ],
    enable_thinking: false,
    reasoning_effort: 'low',
  },
  [ofOneRole]: { messages: neighbours, functions: '[]', datetime: 'Mar 04 2026 05:06:07' },
}

/** `functions` and `datetime` are what the template of firefunction reads. */
const variablesOf = (given: object): object => ({
  ...ends,
  functions: JSON.stringify(tools),
  datetime: 'now',
  ...given,
})

const definitions = [
  {
    name: 'get_weather',
    description: 'Tells it.',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string', description: 'Where.' },
        days: { type: 'integer', description: 'How long.' },
      },
      required: ['city'],
    },
  },
  { name: 'now', description: 'The time.' },
]

/** Renders two calls of an assistant, and reads what stands between the messages around them. */
function isReadAgain(source: string): boolean {
  const template = templateOf(source)
  const { traits } = template
  if (traits.rendersTools && !traits.rendersCalls) return true
  const wanted = [
    { id: 'abcdefgh1', name: 'get_weather', arguments: '{"city": "Rome", "days": 2}' },
    { id: 'abcdefgh2', name: 'now', arguments: '{}' },
  ]
  const toolCalls = traits.allowsParallelCalls ? wanted : wanted.slice(0, 1)
  const messages = [
    { role: 'user', content: 'first-mark' },
    { role: 'assistant', content: '', toolCalls },
    ...toolCalls.map(({ id: toolCallId }) => {
      return { role: 'tool', content: 'outcome-mark', toolCallId } as const
    }),
  ] as const
  const textOf = (count: number): string => {
    const input = { kind: 'chat', messages: messages.slice(0, count), tools: definitions } as const
    return renderPrompt(input, template).pieces.join('')
  }
  const whole = textOf(2)
  const outputs = [
    whole.split('first-mark')[1] ?? '',
    // Without marks that begin like what the template writes for an answer.
    afterCommon(textOf(1), whole),
    // Nemotron Nano v2 leaves out the calls of the last message.
    textOf(messages.length).split(/first-mark|outcome-mark/)[1] ?? '',
  ]
  return outputs.some((output) => isRead(output, template, toolCalls))
}

function isRead(output: string, template: ChatTemplate, toolCalls: readonly ToolCall[]): boolean {
  const input = { kind: 'chat', messages: [], tools: definitions } as const
  const vocabulary = { tokenize: () => [] } as unknown as Vocabulary
  const options = { input, template, prompt: '', hasGrammar: false, vocabulary }
  const { parser: reading } = planParsing(options)
  if (reading === null) return false
  const parser = new OutputParser(reading)
  const told = [parser.push(output), parser.end(false)].flatMap(({ calls }) => calls)
  const calls = toolCalls.map((_, index) => ({
    name: told.find((piece) => piece.index === index)?.name,
    arguments: parse(
      told.flatMap((piece) => (piece.index === index ? piece.arguments : '')).join(''),
    ),
  }))
  return isDeepStrictEqual(
    calls,
    toolCalls.map(({ name, arguments: text }) => ({ name, arguments: parse(text) })),
  )
}

/** The rest of the second text after the common beginning. */
function afterCommon(one: string, other: string): string {
  let at = 0
  while (at < one.length && one[at] === other[at]) at++
  return other.slice(at)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const marks = { bos: '<s>', eos: '</s>' }
const ends = { bos_token: marks.bos, eos_token: marks.eos, add_generation_prompt: true }

function renderHere(source: string, variables: object): Outcome {
  try {
    return { text: new JinjaTemplate(source, () => now).render(variables) }
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    return { error: error.message, isRaised: error.isRaised }
  }
}

describe.runIf(hasJinja)('chat templates of llama.cpp (needs python3-jinja2)', () => {
  let templates: ReadonlyMap<string, string>
  let outcomes: ReadonlyMap<string, readonly Outcome[]>

  beforeAll(() => {
    templates = readTemplates()
    const sources = [...templates.values()]
    const all = Object.values(conversations).flatMap((given) =>
      sources.map((source) => [source, variablesOf(given)] as const),
    )
    const found = renderWithJinja(all)
    outcomes = new Map(
      Object.keys(conversations).map((title) => [title, found.splice(0, sources.length)]),
    )
  })

  it.each([
    ['google-gemma-2-2b-it', { hasSystemRole: false, rendersTools: false }],
    ['mistralai-Mistral-Nemo-Instruct-2407', { callIds: 'nine', rendersTools: true }],
    ['meta-llama-Llama-3.1-8B-Instruct', { allowsParallelCalls: false, rendersTools: true }],
    ['meetkai-functionary-medium-v3.2', { argumentsAs: 'text', rendersTools: true }],
    ['Qwen-Qwen2.5-7B-Instruct', { hasSystemRole: true, allowsParallelCalls: true }],
  ] as const)('%s: %j', (name, traits) => {
    const source = templates.get(name) ?? ''
    const template = templateOf(source)
    expect(template.problem).toBeNull()
    expect(template.traits).toMatchObject(traits)
  })

  it('calls that each template writes are read as calls', () => {
    const unread = [...templates].filter(([, source]) => !isReadAgain(source)).map(([name]) => name)
    expect(unread).toEqual([])
  })

  it('messages of one role are joined only for templates that refuse them', () => {
    const refusing: string[] = []
    for (const [at, [name, source]] of [...templates].entries()) {
      const template = createChatTemplate({ source, ...marks, controls: [], now: () => now })
      const input = { kind: 'chat', messages: neighbours } as const
      const text = renderPrompt(input, template).pieces.join('')
      const reference = outcomes.get(ofOneRole)?.[at]
      if (reference !== undefined && 'text' in reference) expect(text, name).toBe(reference.text)
      else {
        refusing.push(name)
        expect(text, name).toMatch(/One\n\nTwo.*Three.*Four\n\nFive/s)
      }
    }
    expect(refusing).toEqual([
      'Mistral-Small-3.2-24B-Instruct-2506',
      'google-gemma-2-2b-it',
      'mistralai-Ministral-3-14B-Reasoning-2512',
      'mistralai-Mistral-Nemo-Instruct-2407',
    ])
  })

  it('every template can render a message, and says so when it is loaded', () => {
    for (const [name, source] of templates) {
      const { problem } = templateOf(source)
      expect(problem, name).toBeNull()
    }
  })

  it('there are at least 68 of them', () => {
    expect(templates.size).toBeGreaterThanOrEqual(68)
  })

  it.each(Object.entries(conversations))('%s: rendered as Jinja does', (title, given) => {
    const variables = variablesOf(given)
    const wanted = outcomes.get(title) ?? []
    for (const [at, [name, source]] of [...templates].entries()) {
      const here = renderHere(source, variables)
      const reference = wanted[at]
      if (reference === undefined) throw new Error(`${name} was not rendered`)
      if ('text' in reference) expect(here, name).toEqual(reference)
      // Errors of Python itself are worded differently; what a template raises is not.
      else if (reference.isRaised) expect(here, name).toEqual(reference)
      else expect(here, name).toMatchObject({ isRaised: false })
    }
  })
})
