import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { parseInferenceConfig } from './parse-config.ts'
import { Secret } from '../../../src/inference/schema/secret.ts'
import { maskSecrets } from '../../../src/foundation/secrets.ts'

const canary = 'canary-5f0c1e97'
const env = { CANARY: canary }

/** Everything that a log or a report could show of a value. */
const shownOf = (value: unknown): string =>
  [
    inspect(value, { depth: 99, showHidden: true, getters: true }),
    JSON.stringify(value),
    value instanceof Error ? `${value.message} ${value.stack} ${String(value.cause)}` : '',
    String(value),
  ].join('\n')

const errorOf = (text: string, variables: Readonly<Record<string, string>> = env): unknown => {
  try {
    parseInferenceConfig(text, { file: 'config.yaml', env: variables })
  } catch (error) {
    return error
  }
  throw new Error(`no error for ${text}`)
}

describe('row 88: no error quotes a secret', () => {
  // One canary for each case: a value that was registered before would be masked anyway.
  it.each(
    [
      'required: { hf_token: "CANARY CANARY" }',
      'required: { hf_token: [CANARY] }',
      'required: { hf_token: { CANARY: 1 } }',
      'required: { model_name: a, hf_token: "CANARY" CANARY }',
      'required: { model_name: a, hf_token: CANARY, tp_size: CANARY }',
      'required:\n  hf_token:CANARY\n  model_name: a',
      'required: hf_token=CANARY',
      'required: { hf_token: "CANARY',
      'required:\n  hf_token: CANARY: x',
      'required:\n\thf_token: CANARY',
      'required: { "CANARY CANARY CANARY": x }',
      'hf_token: CANARY',
      'CANARY',
      'required: { model_name: [1], hf_token: "${env:NAME}", tp_size: "${env:NAME}" }',
      'llm: { dtype: "${env:NAME}", top_p: "${env:NAME}" }',
      'required: { model_name: "${env:NAME} ${env:NONE}" }',
      'engine: { kind: openai, base_url: "http://u:CANARY@host", api_key: [CANARY] }',
      'engine: { kind: openai, base_url: "ftp://CANARY" }',
      'engine: { kind: process, command: [a, [CANARY]], env: { A: [CANARY] } }',
      'engine: { kind: process, command: "x {port}", env: { A: { CANARY: 1 } } }',
      'engine: { kind: process, command: "x {port}", env: CANARY }',
      'required: { "CANARY CANARY CANARY": x, "CANARY CANARY CANARY": y }',
    ].map((template, at) => [template, `canary-${at}-5f0c1e97`]),
  )('%s', (template, own) => {
    const error = errorOf(template.replaceAll('CANARY', own), { NAME: own })
    expect(shownOf(error)).not.toContain(own)
  })

  it('row 88: a secret in a command is refused, because every user can read it there', () => {
    const error = errorOf(`
required: { model_name: a, hf_token: "\${env:CANARY}" }
engine: { kind: process, command: "serve {port} --token \${env:CANARY}" }`)
    expect(String(error)).toContain('3:26 engine.command: holds a secret; put it into env')
  })
})

it('row 88: printing or serialising a configuration masks its secrets', () => {
  const configs = [
    'required: { model_name: a, hf_token: "${env:CANARY}" }',
    `required: { model_name: ./a }
engine: { kind: openai, base_url: "http://a", api_key: "\${env:CANARY}" }`,
    `required: { model_name: ./a }
engine: { kind: process, command: "a {port}", env: { HF_TOKEN: "\${env:CANARY}" } }`,
  ].map((text) => parseInferenceConfig(text, { file: 'config.yaml', env }))
  for (const config of configs) {
    expect(inspect(config, { depth: 99 })).not.toContain(canary)
    expect(inspect(config, { depth: 99 })).toContain('[masked]')
    expect(JSON.stringify(config)).not.toContain(canary)
  }
  expect(configs[0]?.hubToken?.reveal()).toBe(canary)
  expect(configs[2]?.engine).toHaveProperty('env.HF_TOKEN', canary)
  expect(Object.keys(configs[2]?.engine.kind === 'process' ? configs[2].engine.env : {})).toEqual([
    'HF_TOKEN',
  ])
})

describe('row 88: values for the environment of an engine', () => {
  const read = (value: string, variables: Readonly<Record<string, string>>) =>
    parseInferenceConfig(
      `required: { model_name: ./a }
engine: { kind: process, command: "a {port}", env: { A: "${value}" } }`,
      { file: 'config.yaml', env: variables },
    )

  it.each([
    ['${env:UPK}', 'canary-up-1', 'got canary-up-1 here', 'got [masked] here'],
    ['Bearer ${env:UPK}', 'canary-up-2', 'key canary-up-2', 'key [masked]'],
    ['Bearer ${env:UPK}', 'canary-up-3', 'auth Bearer canary-up-3', 'auth [masked]'],
    ['db://me:${env:UPK}@host', 'short', 'open db://me:short@host', 'open [masked]'],
  ])(
    'row 88: a value from the environment is masked from then on: %s with %s',
    (value, secret, said, shown) => {
      read(value, { UPK: secret })
      expect(maskSecrets(said)).toBe(shown)
    },
  )

  it('row 88: a value that is written in the file, or is a path, is not masked', () => {
    read('a-written-value', {})
    read('${env:HOME}/cache', { HOME: '/rooms/of-nobody' })
    read('${env:SOME_PATH}', { SOME_PATH: '/lib/of-nobody' })
    const said = 'a-written-value /rooms/of-nobody/cache /lib/of-nobody'
    expect(maskSecrets(said)).toBe(said)
  })

  it('row 88: a value from the environment is refused in the command', () => {
    const error = errorOf(
      `required: { model_name: ./a }
engine: { kind: process, command: "serve {port} \${env:UPK}", env: { A: "\${env:UPK}" } }`,
      { UPK: 'canary-up-4' },
    )
    expect(String(error)).toContain('engine.command: holds a secret; put it into env')
    expect(shownOf(error)).not.toContain('canary-up-4')
  })
})

it('Secret: only reveal() returns the value; it is masked everywhere else', () => {
  const secret = new Secret('another-canary')
  expect(shownOf({ secret })).not.toContain('another-canary')
  expect(String(secret)).toBe('[masked]')
  expect(maskSecrets('an another-canary')).toBe('an [masked]')
  expect(secret.reveal()).toBe('another-canary')
})
