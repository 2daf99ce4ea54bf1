import { beforeAll, describe, expect, it } from 'vitest'
import { JinjaTemplate } from '../../../../../src/inference/engines/llama/jinja/template.ts'
import { TemplateError } from '../../../../../src/inference/engines/llama/jinja/values.ts'
import { templateOf } from '../formats/template-of.ts'
import { hasJinja, now, type Outcome, readTemplates, renderWithJinja } from './reference.ts'

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
}

/** `functions` and `datetime` are what the template of firefunction reads. */
const variablesOf = (given: object): object => ({
  ...ends,
  functions: JSON.stringify(tools),
  datetime: 'now',
  ...given,
})

const ends = { bos_token: '<s>', eos_token: '</s>', add_generation_prompt: true }

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
    ['google-gemma-2-2b-it.jinja', { hasSystemRole: false, knowsTools: false }],
    ['mistralai-Mistral-Nemo-Instruct-2407.jinja', { callIds: 'nine', knowsTools: true }],
    ['meta-llama-Llama-3.1-8B-Instruct.jinja', { allowsParallelCalls: false, knowsTools: true }],
    ['meetkai-functionary-medium-v3.2.jinja', { argumentsAs: 'text', knowsTools: true }],
    ['Qwen-Qwen2.5-7B-Instruct.jinja', { hasSystemRole: true, allowsParallelCalls: true }],
  ] as const)('%s: %j', (name, traits) => {
    const source = templates.get(name) ?? ''
    const template = templateOf(source)
    expect(template.problem).toBeNull()
    expect(template.traits).toMatchObject(traits)
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
