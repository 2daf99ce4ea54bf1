import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import type { ToolDefinition } from '../../../../../src/inference/generation/inference-engine.ts'
import { parsed, read, readingBy, sources, tools } from './read-output.ts'

/** An output of a model, and what it contains. Written by hand. */
interface OutputCase {
  readonly title: string
  readonly template: string
  /** Default: those of most tests. */
  readonly tools?: readonly ToolDefinition[]
  readonly templateArguments?: Readonly<Record<string, boolean>>
  readonly output: string
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly (readonly [string, object])[]
}

const outputs = JSON.parse(
  readFileSync(new URL('outputs.json', import.meta.url), 'utf8'),
) as readonly OutputCase[]

it.each(outputs)('$template: $title, whole and letter by letter', (one) => {
  const { template, output, text, reasoning, calls } = one
  const { tools: own = tools, templateArguments = {} } = one
  const options = readingBy(sources.get(template) ?? '', { tools: own, templateArguments })
  const whole = read([output], options)
  expect(parsed(whole)).toEqual({ text, reasoning, calls })
  expect(read(Array.from(output), options)).toEqual(whole)
})

it.each(['LFM2-8B-A1B', 'LFM2.5-Instruct', 'LFM2.5-8B-A1B'])(
  '%s: an argument without its value, because the output is cut',
  (template) => {
    const options = readingBy(sources.get(template) ?? '', { tools })
    const output = '<|tool_call_start|>[weather(city='
    const expected = { text: '', calls: [{ name: 'weather', arguments: '{"city": ' }] }
    expect(read([output], options, true)).toMatchObject(expected)
    expect(read(Array.from(output), options, true)).toMatchObject(expected)
  },
)
