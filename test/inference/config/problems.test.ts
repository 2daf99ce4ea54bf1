import { describe, expect, it } from 'vitest'
import { ValueError } from '../../../src/foundation/errors.ts'
import { parseInferenceConfig } from './parse-config.ts'

/** The lines of the error for a text. */
function problemsOf(text: string): string[] {
  try {
    parseInferenceConfig(text, { file: 'config.yaml', env: { EMPTY: '' } })
  } catch (error) {
    expect(error).toBeInstanceOf(ValueError)
    expect(error).toMatchObject({ code: 'ConfigError', field: 'configFile' })
    return (error as ValueError).message.split('\n')
  }
  return []
}

const local = 'required: { model_name: ./tiny.gguf }\n'

it('row 86: one error lists all problems with line and column, in the order of the file', () => {
  expect(
    problemsOf(`required:
  tp_size: 0
hardware:
  num_gpus: "1"
  num_nodes: -1
input_batching:
  max_batch_sise: 1
  type: fast
llm: { temperature: 3, stop: [a, 1] }
llmm: {}
`),
  ).toEqual([
    'config.yaml:1:1 required.model_name: missing; set it, or the option modelName',
    'config.yaml:2:12 required.tp_size: expected an integer from 1 to 1024, got 0',
    'config.yaml:4:13 hardware.num_gpus: expected an integer from 0 to 1024, got "1" (string)',
    'config.yaml:5:14 hardware.num_nodes: expected an integer from 1 to 65536, got -1',
    'config.yaml:7:3 max_batch_sise: unknown key, did you mean max_batch_size?',
    'config.yaml:8:9 input_batching.type: expected one of adaptive, fixed, got "fast" (string)',
    'config.yaml:9:21 llm.temperature: expected a number from 0 to 2, got 3',
    'config.yaml:9:34 llm.stop[1]: expected a non-empty text, got 1',
    'config.yaml:10:1 llmm: unknown key, did you mean llm?',
  ])
})

it('row 86: a key outside of its section is told where it belongs', () => {
  expect(problemsOf(`${local}max_batch_sise: 4\ntemperature: 1\nllmm: {}\nxyz: 1\n`)).toEqual([
    'config.yaml:2:1 max_batch_sise: unknown key, did you mean input_batching.max_batch_size?',
    'config.yaml:3:1 temperature: unknown key, did you mean llm.temperature?',
    'config.yaml:4:1 llmm: unknown key, did you mean llm?',
    expect.stringMatching(/^config.yaml:5:1 xyz: unknown key, known are required, hardware, llm, /),
  ])
})

it('row 86: relations between values are reported beside wrong and missing values', () => {
  expect(
    problemsOf(`${local}llm: { max_tokens: 9000, temperature: 3, tep_k: 1 }
dynamic_workers: { min_workers: 4, max_workers: 2 }
guardrails: { rules: [{ id: a, pattern: b, keywords: c, action: x }] }
engine: { kind: openai, max_concurrency: 0 }
`),
  ).toEqual([
    'config.yaml:2:20 llm.max_tokens: expected at most max_model_len (8192), got 9000',
    'config.yaml:2:39 llm.temperature: expected a number from 0 to 2, got 3',
    'config.yaml:2:42 tep_k: unknown key, did you mean top_k?',
    'config.yaml:3:49 dynamic_workers.max_workers: expected at least min_workers (4), got 2',
    'config.yaml:4:23 guardrails.rules[0]: expected a pattern or keywords, not both',
    expect.stringMatching(/^config.yaml:4:65 guardrails.rules\[0\].action: expected one of reject/),
    'config.yaml:5:1 engine.base_url: missing',
    'config.yaml:5:42 engine.max_concurrency: expected an integer from 1 to 65536, got 0',
  ])
})

describe('row 87: a value of another type or form is refused', () => {
  it.each([
    ['input_batching: { max_batch_wait_ms: 1e12 }', 'an integer from 0 to 3600000, got 1e12'],
    ['input_batching: { max_batch_wait_ms: 1.5 }', 'an integer from 0 to 3600000, got 1.5'],
    [
      'input_batching: { max_batch_size: 0x1F40 }',
      'an integer from 1 to 65536 in plain decimal digits, got 0x1F40',
    ],
    ['hardware: { num_nodes: 1_000 }', 'an integer from 1 to 65536, got "1_000" (string)'],
    ['hardware: { num_nodes: 0o17 }', 'in plain decimal digits, got 0o17'],
    ['hardware: { num_nodes: true }', 'an integer from 1 to 65536, got true'],
    ['hardware: { num_nodes: [1] }', 'an integer from 1 to 65536, got a list'],
    ['input_batching: { toggle_on: yes }', 'true or false, got "yes" (string)'],
    ['input_batching: { toggle_on: off }', 'true or false, got "off" (string)'],
    ['input_batching: { toggle_on: 1 }', 'true or false, got 1'],
    ['input_batching: { toggle_on: "true" }', 'true or false without quotes, got "true" (string)'],
    ['llm: { top_p: .nan }', 'a number above 0 and at most 1, got .nan'],
    ['llm: { top_p: 0 }', 'a number above 0 and at most 1, got 0'],
    ['llm: { top_p: 0x1 }', 'a number above 0 and at most 1, got 0x1'],
    ['llm: { seed: -1 }', 'an integer from 0 to 4294967295, got -1'],
    ['engine: { kind: lama }', 'one of llama, openai, process, echo, got "lama" (string)'],
    ['engine: { gpu: true }', 'one of auto, false, got true'],
    ['engine: { sequences: 257 }', 'an integer from 1 to 256, got 257'],
  ])('%s', (text, expected) => {
    const problems = problemsOf(local + text)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toContain(expected)
  })

  it('row 87: a key without a value keeps the default', () => {
    expect(problemsOf(`${local}llm:\nhardware: { num_nodes: , queue_limit: null }`)).toEqual([])
  })
})

describe('values that do not fit together', () => {
  it.each([
    ['llm: { max_tokens: 9000 }', '2:20 llm.max_tokens: expected at most max_model_len (8192)'],
    [
      'dynamic_workers: { min_workers: 4, max_workers: 2 }',
      '2:49 dynamic_workers.max_workers: expected at least min_workers (4), got 2',
    ],
    [
      'engine: { base_url: x }',
      '2:11 base_url: belongs to the openai engine, but the kind is llama',
    ],
    ['engine: { kind: openai }', '2:1 engine.base_url: missing'],
    ['engine: { kind: process, command: " " }', '2:35 engine.command: expected a program and its'],
    ['engine: { kind: process, command: [] }', '2:35 engine.command: expected a program and its'],
    [
      'engine: { kind: process, command: "vllm serve {model} --port {prt}" }',
      '2:35 engine.command: unknown placeholder {prt}; did you mean "port"? (known: {model}',
    ],
    [
      'engine: { kind: process, command: [sleep, "100"] }',
      '2:35 engine.command: expected {port}, the port where the server must listen',
    ],
    [
      'engine: { kind: process, command: "{port}", env: { "a-b": c } }',
      '2:52 engine.env: expected the name of a variable as key',
    ],
    ['guardrails: { rules: [limits] }', '2:22 guardrails.rules: limits needs max_prompt_chars'],
    [
      'guardrails: { rules: [3] }',
      '2:23 guardrails.rules[0]: expected one of injection, secrets, personal_data, limits, ' +
        'or a rule with an id, got 3',
    ],
    ['guardrails: { rules: [secret] }', '2:23 guardrails.rules[0]: expected one of injection'],
    ['guardrails: { rules: [secrets, secrets] }', 'two rules have the id secrets'],
    ['guardrails: { rules: [{ id: a }] }', 'rules[0]: expected a pattern or keywords'],
    [
      'guardrails: { rules: [{ id: a, keywords: [] }] }',
      '2:42 guardrails.rules[0].keywords: expected at least one word or phrase',
    ],
    ['guardrails: { rules: [{ pattern: a }] }', 'rules[0]: expected an id'],
    ['guardrails: { rules: [{ id: a, pattern: b, keywords: c }] }', 'not both'],
    ['guardrails: { rules: [{ id: secrets, pattern: b }] }', 'secrets is a built-in rule'],
    [
      'guardrails: { rules: [{ id: injection, stage: both }] }',
      '2:47 guardrails.rules[0].stage: injection checks prompts only',
    ],
    [
      String.raw`guardrails: { rules: [{ id: a, pattern: (x+)\1 }] }`,
      '2:41 guardrails.rules[0].pattern: expected a regular expression without back-references',
    ],
    [
      'guardrails: { rules: [{ id: a, pattern: "a(?!b)" }] }',
      '2:41 guardrails.rules[0].pattern: expected a regular expression without look-around',
    ],
    ['guardrails: { rules: [{ id: a, pattern: "(" }] }', 'expected a regular expression'],
    ['llm: { stop: 5 }', '2:14 llm.stop: expected a non-empty text, or a list of them, got 5'],
    [
      'engine: { kind: openai, base_url: "localhost:8000" }',
      '2:35 engine.base_url: expected an address that begins with http:// or https://',
    ],
    [
      'llm: { system_prompt: ${env:PROMPT} }',
      '2:24 not valid YAML: ${env:NAME} must stand in quotes inside of { } and [ ]',
    ],
    [
      'llm:\n  seed: 1\n   top_k: 2',
      '3:9 not valid YAML: a key over several lines; is a ": " missing, or is the next line',
    ],
    ['llm: x', '2:6 llm: expected keys and values, got a string'],
  ])('%s', (text, expected) => {
    const problems = problemsOf(local + text)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toContain(expected)
  })

  it.each([
    [
      'model_name: org/model',
      '1:1 required.token_file: there is no file org/model; a download from the hub needs',
    ],
    ['model_name: org/m, hf_token: "${env:NONE}"', '1:42 required.hf_token: the environment'],
    ['model_name: org/m, hf_token: "${env:}"', 'the environment variable (no name) is not set'],
    ['model_name: org/m, hf_token: "${env:EMPTY}"', 'required.hf_token: expected a token without'],
    ['model_name: org/m, hf_token: a, token_file: b', 'hf_token is set too; keep one of them'],
    ['model_name: org/m, token_file: b', 'token_file: cannot be used (there are no files)'],
    ['model_name: 7', 'required.model_name: expected a non-empty text, got 7'],
  ])('required: { %s }', (text, expected) => {
    const problems = problemsOf(`required: { ${text} }`)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toContain(expected)
  })

  it.each(['./a', '../a', '/a', '~/a', 'a.gguf', 'A.GGUF'])('%s needs no token', (name) => {
    expect(problemsOf(`required: { model_name: ${name} }`)).toEqual([])
  })

  it('no token is needed with an engine that does not download the model', () => {
    expect(problemsOf('required: { model_name: org/a }\nengine: { kind: echo }')).toEqual([])
    expect(problemsOf('required: { model_name: org/a }\nengine: { kind: lama }')).toEqual([
      'config.yaml:2:17 engine.kind: expected one of llama, openai, process, echo, ' +
        'got "lama" (string)',
    ])
  })
})

describe('row 85: YAML that is expensive to parse is refused with its position', () => {
  const bomb = ['a: &a [x, x]', 'b: &b [*a, *a]', 'c: &c [*b, *b]', 'd: [*c, *c]'].join('\n')
  const deepMap = Array.from({ length: 400 }, (_, depth) => `${' '.repeat(depth)}k:`).join('\n')
  const keys = Array.from({ length: 30_000 }, (_, at) => `k${at}: 1`).join('\n')

  it.each([
    ['an alias bomb', bomb, '2:8 the alias stands in a value that has an alias itself'],
    ['a ring', 'a: &a [*a]', '1:8 the alias stands in a value that has an alias itself'],
    ['many aliases', `a: &a 1\nb: [${'*a, '.repeat(33)}]`, '2:133 more than 32 aliases'],
    ['an alias of nothing', 'a: *b', '1:4 the alias names no anchor'],
    ['10 MB', 'x'.repeat(10_000_000), '1:1 larger than 1048576 bytes'],
    ['10,000 brackets', '['.repeat(10_000), '1:101 nested more than 100 deep'],
    ['closed before opened', `]${'[a'.repeat(10_000)}`, 'nested more than 100 deep'],
    ['10,000 braces', '{a: '.repeat(10_000), '1:401 nested more than 100 deep'],
    ['10,000 dashes', '- '.repeat(10_000), '1:201 nested more than 100 deep'],
    ['10,000 question marks', '? '.repeat(10_000), '1:201 nested more than 100 deep'],
    ['10,000 keys on a line', 'a: '.repeat(10_000), '1:302 nested more than 100 deep'],
    ['400 keys in each other', deepMap, '101:102 nested more than 100 deep'],
    ['30,000 keys', keys, 'more than 20000 words and signs'],
    ['a million empty lines', '\n'.repeat(1_000_000), 'more than 20000 words and signs'],
    ['a tag', 'a: !!js/function "x"', '1:4 tags such as !!name are not allowed'],
    ['an own tag', 'a: !x {}', '1:4 tags such as !!name are not allowed'],
    ['a directive', '%YAML 1.1\n---\na: yes', '1:1 directives such as %YAML are not allowed'],
    ['two documents', 'a: 1\n---\nb: 2', '2:1 not valid YAML: a second document'],
    ['a key given twice', 'a: 1\nb: 2\na: 3', '3:1 a: given before, on line 1'],
    ['a tab', 'a:\n\tb: 1', '2:1 not valid YAML: a tab; indent with spaces'],
    ['a merge', '<<: { __proto__: { a: 1 } }', '1:7 __proto__: not allowed as a key'],
    ['a constructor', 'llm: { constructor: 1 }', '1:8 constructor: not allowed as a key'],
    ['a list as key', '? [a]\n: 1', '1:3 a key must be a plain word'],
    ['no sections', 'hello', '1:1 expected sections, such as "required:"'],
    ['an open brace', 'a: { b: 1\n', '2:1 not valid YAML: a } or ] is missing'],
    ['an open quote', 'a: "b', 'not valid YAML: a quote, bracket, comma or colon is missing'],
  ])('%s', (_, text, expected) => {
    const problems = problemsOf(text)
    expect(problems.length).toBeGreaterThan(0)
    expect(problems[0]).toContain(`config.yaml:`)
    expect(problems[0]).toContain(expected)
  })

  it('row 85: a merge key is an unknown key', () => {
    const [problem] = problemsOf(`base: &b { max_tokens: 1 }\n${local}llm: { <<: *b }`).slice(-1)
    expect(problem).toContain('3:8 <<: unknown key, known are dtype')
    expect(({} as Record<string, unknown>)['max_tokens']).toBeUndefined()
  })

  it('row 85: an alias of a plain value is accepted', () => {
    const text = 'required: { model_name: &m ./m.gguf }\nllm: { stop: *m, system_prompt: *m }'
    expect(parseInferenceConfig(text, { file: 'a', env: {} }).llm).toMatchObject({
      stop: ['./m.gguf'],
      systemPrompt: ['./m.gguf'],
    })
  })

  it('row 86: an error lists 50 problems and the number of the others', () => {
    const many = Array.from({ length: 60 }, (_, at) => `k${at}: 1`).join('\n')
    const problems = problemsOf(`${local}${many}`)
    expect(problems).toHaveLength(51)
    expect(problems.at(-1)).toBe('and 10 more problems')
  })
})
