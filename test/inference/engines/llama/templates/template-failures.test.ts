import { describe, expect, it } from 'vitest'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { createEngine, openEngine, useTinyModel } from '../open-engine.ts'
import { templateOf } from './template-of.ts'

const broken = useTinyModel('{{ nothing.at_all }}')
const named = useTinyModel('{{ messages[0].name }}{{ messages[0].content }}')
const strict = useTinyModel(
  "{% if messages[0].content == 'bad' %}{{ raise_exception('not this one') }}{% endif %}" +
    "{{ messages[0].content }}{% if messages[0].content == 'worse' %}{{ x.y }}{% endif %}",
)

const costly = useTinyModel(
  '{{ messages[0].content }}{% set l = [messages] %}' +
    "{% if messages[0].content == 'cyclic' %}{% do l.append(l) %}{{ l }}{% endif %}" +
    "{% if messages[0].content == 'wide' %}{{ 'x'|indent(10 ** 9, true) }}{% endif %}",
)

async function ask(path: string, inputs: readonly Parameters<typeof toRequest>[0][]) {
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const engine = await openEngine(path, { log })
  const listener = new RecordingGeneration()
  const sampling = { maxTokens: 2, ignoreEos: true }
  await engine.generate(
    inputs.map((input, at) => toRequest(input, sampling, { id: `${at}` })),
    listener,
  )
  const ends = listener.ends.toSorted((one, other) => Number(one.id) - Number(other.id))
  return { warnings, ends }
}

describe('names of participants', () => {
  it.each([
    ['{{ messages[0].content }}', false],
    ['{{ messages[0].content }}{% for tool in tools %}{{ tool.function.name }}{% endfor %}', false],
    ['{{ messages[0].name }}: {{ messages[0].content }}', true],
  ])('the template %s reads them: %s', (source, isRead) => {
    expect(templateOf(source).readsNames).toBe(isRead)
  })

  it('the engine says whether the template of its model reads them', async () => {
    const fieldsOf = async (path: string) => {
      const engine = createEngine(path)
      const { fields } = await engine.start()
      await engine.close()
      return fields
    }
    expect(await fieldsOf(named.path)).toContain('messages.name')
    expect(await fieldsOf(strict.path)).not.toContain('messages.name')
  })
})

describe('llama engine: a template that cannot be rendered', () => {
  it('llama engine: a broken template fails chats as a server error, but not text', async () => {
    const { warnings, ends } = await ask(broken.path, ['hi', { kind: 'text', text: 'abc' }])
    const reason = "the chat template of the model cannot be rendered: 'nothing' is undefined"
    expect(warnings).toEqual([
      `ChatTemplateUnusable: ${reason} (chats will fail; text completions work)`,
    ])
    expect(ends).toMatchObject([
      { kind: 'failed', error: { code: 'engine_error', message: reason } },
      { kind: 'done' },
    ])
  })

  it('llama engine: an error raised by a template is the client’s mistake', async () => {
    const { warnings, ends } = await ask(strict.path, ['fine', 'bad', 'worse'])
    expect(warnings).toEqual([])
    expect(ends).toMatchObject([
      { kind: 'done' },
      { kind: 'failed', error: { code: 'unsupported', message: 'not this one' } },
      { kind: 'failed', error: { code: 'engine_error' } },
    ])
  })

  it('llama engine: a template that costs too much is not the client’s mistake', async () => {
    const { warnings, ends } = await ask(costly.path, ['fine', 'cyclic', 'wide'])
    expect(warnings).toEqual([])
    const failed = (reason: string): object => ({
      kind: 'failed',
      error: {
        code: 'engine_error',
        message: `the chat template of the model cannot be rendered: ${reason}`,
      },
    })
    expect(ends).toMatchObject([
      { kind: 'done' },
      failed('a value is nested too deeply'),
      failed('a text is too long'),
    ])
  })
})
