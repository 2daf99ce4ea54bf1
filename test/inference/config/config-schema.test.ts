import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Ajv } from 'ajv'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { configJsonSchema } from '../../../scripts/config-json-schema.ts'

interface Described {
  readonly description?: string
  readonly default?: unknown
  readonly properties?: Readonly<Record<string, Described>>
  readonly oneOf?: readonly Described[]
}

const textOf = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../../${path}`, import.meta.url)), 'utf8')
const committed = JSON.parse(textOf('docs/config.schema.json')) as Described
const validate = new Ajv({ strict: true, allowUnionTypes: true }).compile(committed)
const local = 'required: { model_name: ./tiny.gguf }\n'

describe('docs/config.schema.json', () => {
  it('docs/config.schema.json is what the code generates (npm run config-schema)', () => {
    expect(committed).toEqual(configJsonSchema())
  })

  it('docs/config.schema.json describes every section and every key', () => {
    const missing: string[] = []
    const visit = (schema: Described, path: string): void => {
      for (const [key, inner] of Object.entries(schema.properties ?? {})) {
        if (inner.description === undefined) missing.push(`${path}${key}`)
        visit(inner, `${path}${key}.`)
      }
      for (const option of schema.oneOf ?? []) visit(option, path)
    }
    visit(committed, '')
    expect(missing).toEqual([])
  })

  it.each([
    ['examples/stories.yaml', textOf('examples/stories.yaml')],
    ['README.md', /```yaml\n(.*?)```/s.exec(textOf('README.md'))?.[1] ?? ''],
    ['only a model', local],
    ['keys without a value', `${local}llm:\nhardware: { num_nodes: , queue_limit: null }`],
    ['one text instead of a list', `${local}llm: { stop: a, system_prompt: Be brief. }`],
    ['a variable in a text', 'required: { model_name: "${env:NAME}", hf_token: "${env:TOKEN}" }'],
    [
      'every rule of guardrails',
      `${local}guardrails: { toggle_on: true, max_prompt_chars: 5, rules: [secrets,
        { id: injection, action: flag }, { id: falcon, keywords: falcon, unless: [falcon heavy] },
        { id: badge, pattern: 'B-\\d{4}', stage: both }] }`,
    ],
    ['an engine by its keys alone', `${local}engine: { sequences: 4, gpu: false }`],
    ['an openai engine', `${local}engine: { kind: openai, base_url: "http://a/v1" }`],
    [
      'a process engine',
      `${local}engine: { kind: process, command: 'serve {port}', env: { A: b } }`,
    ],
    ['an echo engine', `${local}engine: { kind: echo, latency_ms: 1.5 }`],
  ])('docs/config.schema.json accepts a valid file: %s', (_, text) => {
    const isValid = validate(parse(text))
    expect(validate.errors ?? []).toEqual([])
    expect(isValid).toBe(true)
  })

  it.each([
    'llmm: {}',
    'input_batching: { max_batch_sise: 1 }',
    'input_batching: { type: fast }',
    'input_batching: { toggle_on: "true" }',
    'hardware: { num_nodes: 0 }',
    'hardware: { num_gpus: "1" }',
    'hardware: { num_nodes: [1] }',
    'llm: { temperature: 3 }',
    'llm: { top_p: 0 }',
    'llm: { stop: [a, 1] }',
    'llm: x',
    'guardrails: { rules: [secret] }',
    'guardrails: { rules: [{ pattern: a }] }',
    'engine: { kind: lama }',
    'engine: { kind: openai }',
    'engine: { base_url: x }',
    'engine: { gpu: true }',
    'engine: { kind: process, command: "{port}", env: { "a-b": c } }',
  ])('docs/config.schema.json rejects what the loader rejects: %s', (text) => {
    expect(validate(parse(local + text))).toBe(false)
  })
})

describe('the tables of keys in docs/inference.md', () => {
  const guide = textOf('docs/inference.md')
  /** `key` and the beginning of what stands in brackets after it. */
  const keysIn = (cell: string): Map<string, string> => {
    const entries = cell.matchAll(/`(\w+)`(?:\s*\(((?:[^()]|\([^()]*\))*)\))?/g)
    return new Map(
      [...entries].map(([, key = '', note = '']) => [
        key,
        note.replaceAll('`', '').split(/[ ,]/)[0] ?? '',
      ]),
    )
  }
  const rowOf = (name: string, column: number): string => {
    const row = guide.split('\n').find((line) => line.startsWith(`| \`${name}\` |`))
    return row?.split(/(?<!\\)\|/)[column] ?? ''
  }
  const sections = committed.properties ?? {}
  const engines = (sections['engine']?.oneOf ?? []).filter(({ properties }) => properties)

  const expectSame = (documented: Map<string, string>, schema: Described | undefined): void => {
    const keys = Object.entries(schema?.properties ?? {})
    expect([...documented.keys()]).toEqual(keys.map(([key]) => key))
    for (const [key, { default: usual }] of keys) {
      if (usual !== undefined) expect([key, documented.get(key)]).toEqual([key, String(usual)])
    }
  }

  it.each(Object.keys(sections).filter((name) => name !== 'engine'))(
    'docs/inference.md lists the keys and defaults of the section %s',
    (name) => expectSame(keysIn(rowOf(name, 2)), sections[name]),
  )

  it.each(['llama', 'openai', 'process', 'echo'])(
    'docs/inference.md lists the keys and defaults of the engine %s',
    (name) => {
      const at = ['llama', 'openai', 'process', 'echo'].indexOf(name)
      const { kind: _, ...properties } = engines[at]?.properties ?? {}
      expectSame(keysIn(rowOf(name, 3)), { properties })
    },
  )
})
