import { describe, expect, it } from 'vitest'
import type { OutputFormat } from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { useEngine, useTinyModel } from '../open-engine.ts'

const tiny = useTinyModel()
const engine = useEngine(() => tiny.path, { sequences: 4, batchSize: 16 })

async function generate(format: OutputFormat, seed = 1) {
  const listener = new RecordingGeneration()
  const sampling = { temperature: 1, seed, maxTokens: 200, format }
  await engine().generate([toRequest({ kind: 'text', text: 'abc' }, sampling)], listener)
  return { text: listener.textOf(), end: listener.ends[0] }
}

const schema = (properties: Record<string, object>): OutputFormat => ({
  kind: 'json_schema',
  schema: { type: 'object', properties, required: Object.keys(properties) },
})

const requires = (name: string) => ({ properties: { [name]: { const: 1 } }, required: [name] })

describe('llama engine: an output that must match', () => {
  it.each<[OutputFormat, RegExp]>([
    [{ kind: 'regex', pattern: '^[a-f]{3}-\\d{2}$' }, /^[a-f]{3}-\d{2}$/],
    [{ kind: 'regex', pattern: '[A-F]{2}\\d{3}' }, /^[A-F]{2}\d{3}$/],
    [{ kind: 'regex', pattern: 'a{3}|^b{2}|c{4}$' }, /^(?:aaa|bb|cccc)$/],
    [{ kind: 'regex', pattern: '[a-c]{2,6}@[a-c]{2}\\.com\\n' }, /^[a-c]{2,6}@[a-c]{2}\.com\n$/],
    [{ kind: 'choice', choices: ['yes', 'no "or"', 'a\\b'] }, /^(?:yes|no "or"|a\\b)$/],
    [{ kind: 'grammar', grammar: 'root ::= "x" [0-9]{2} | "y"' }, /^(?:x\d{2}|y)$/],
    [schema({ age: { type: 'integer', minimum: 18, maximum: 21 } }), /:\s*(?:18|19|20|21)\s*\}$/],
    [
      schema({ part: { type: 'number', minimum: 0, maximum: 1 } }),
      /:\s*(?:0(?:\.\d+)?|1(?:\.0+)?)\s*\}$/,
    ],
    [schema({ code: { type: 'string', pattern: '^[A-Z]{2}$' } }), /"[A-Z]{2}"\s*\}$/],
    [schema({ day: { type: 'string', format: 'date' } }), /"\d{4}-[01]\d-[0-2]\d"\s*\}$/],
    [
      schema({ pair: { items: [{ const: 1 }, { type: 'boolean' }], additionalItems: false } }),
      /\[\s*1,\s*(?:true|false)\s*\]\s*\}$/,
    ],
    [
      {
        kind: 'json_schema',
        schema: { allOf: [{ $ref: '#/$defs/a' }, requires('b')], $defs: { a: requires('a') } },
      },
      /^\{\s*"a":\s*1,\s*"b":\s*1\s*\}$/,
    ],
    [
      {
        kind: 'json_schema',
        schema: { ...requires('a'), additionalProperties: { const: 2 }, maxProperties: 2 },
      },
      /^\{\s*"a":\s*1(?:,\s*"(?!a")(?:[^"\\]|\\.)*":\s*2)?\s*\}$/,
    ],
    [
      schema({ to: { type: 'string', format: 'email', maxLength: 24 } }),
      /"[^"@]{1,8}@[^"@]+"\s*\}$/,
    ],
  ])('%j', async (format, wanted) => {
    for (const seed of [1, 2, 3]) {
      const { text, end } = await generate(format, seed)
      expect(end).toMatchObject({ kind: 'done', finishReason: 'stop' })
      expect(text).toMatch(wanted)
    }
  })

  const call = async (parameters: object, choice: 'required' | { name: string }) => {
    const listener = new RecordingGeneration()
    const tools = [{ name: 'other' }, { name: 'f', parameters }]
    const messages = [{ role: 'user', content: 'hi' }] as const
    const input = { kind: 'chat', messages, tools, toolChoice: choice } as const
    const sampling = { temperature: 1, seed: 1, maxTokens: 200 }
    await engine().generate([toRequest(input, sampling)], listener)
    return listener
  }

  it.each(['required', { name: 'f' }] as const)(
    'a schema of a tool is refused with the tool and the place (%j)',
    async (choice) => {
      const { ends } = await call({ properties: { a: { not: {} } } }, choice)
      const param = 'tools[1].function.parameters'
      const message = `Invalid '${param}': \`not\` cannot be enforced, at \`#/properties/a\``
      expect(ends[0]).toMatchObject({
        kind: 'failed',
        error: { code: 'unsupported', message, refusal: { status: 400, param } },
      })
    },
  )

  it('a tool that no arguments fit is refused, although others can be called', async () => {
    const { ends } = await call(
      { type: 'object', required: ['a'], properties: { a: false } },
      'required',
    )
    const param = 'tools[1].function.parameters'
    const fault = 'no arguments fit `f`: false allows nothing, at `#/properties/a`'
    const message = `Invalid '${param}': ${fault}`
    expect(ends[0]).toMatchObject({
      kind: 'failed',
      error: { code: 'unsupported', message, refusal: { status: 400, param } },
    })
  })

  it('references in the parameters of a tool are to its own schema', async () => {
    const parameters = { ...requires('b'), $defs: { one: { const: 1 } } }
    const properties = { b: { $ref: '#/$defs/one' } }
    const { ends, deltas } = await call({ ...parameters, properties }, { name: 'f' })
    expect(ends[0]).toMatchObject({ kind: 'done', finishReason: 'tool_calls' })
    const pieces = deltas.flatMap(({ toolCallPieces = [] }) => toolCallPieces)
    expect(JSON.parse(pieces.map((piece) => piece.arguments).join(''))).toEqual({ b: 1 })
  })

  it.each<[OutputFormat, string]>([
    [{ kind: 'grammar', grammar: 'root ::= (', field: 'grammar' }, 'grammar'],
    [{ kind: 'grammar', grammar: 'root ::= root "a"', field: 'guided_grammar' }, 'guided_grammar'],
    [{ kind: 'grammar', grammar: 'root ::= "a"{5,1}', field: 'grammar' }, 'grammar'],
    [
      { kind: 'grammar', grammar: 'root ::= "a" [^\\x00-\\U0010FFFF]', field: 'grammar' },
      'grammar',
    ],
    [{ kind: 'grammar', grammar: 'root ::= <[2]>', field: 'guided_grammar' }, 'guided_grammar'],
    // The ways to read it double with each character: llama.cpp stopped the process.
    [
      { kind: 'grammar', grammar: 'root ::= [a-z] root "b" | [a-z] root "c"', field: 'grammar' },
      'grammar',
    ],
    [{ kind: 'regex', pattern: 'a[]', field: 'guided_regex' }, 'guided_regex'],
    [{ kind: 'regex', pattern: '(?=a)', field: 'guided_regex' }, 'guided_regex'],
    [{ kind: 'json_schema', schema: { not: {} }, field: 'guided_json' }, 'guided_json'],
    [{ kind: 'json_schema', schema: { not: {} } }, 'response_format'],
  ])('%j is refused with the name of the field', async (format, param) => {
    const { end } = await generate(format)
    expect(end).toMatchObject({
      kind: 'failed',
      error: { code: 'unsupported', refusal: { status: 400, param } },
    })
  })
})
