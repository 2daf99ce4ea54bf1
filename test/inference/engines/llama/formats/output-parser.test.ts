import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  plainFormat,
  findToolFormat,
} from '../../../../../src/inference/engines/llama/formats/tool-formats.ts'
import { read } from './read-output.ts'

describe('arguments that are not JSON', () => {
  const outputs = [
    '{"name":"now","arguments":}}',
    '{"name":"now","arguments":<b>}',
    '{"name":"now","arguments":"x"}',
    '{"arguments":},"name":"now"}',
    '{"name":"now","arguments":',
  ]

  it.each(outputs)('%s is content, whole and letter by letter', (output) => {
    const content = { text: output, reasoning: '', calls: [] }
    expect(read([output], { format: plainFormat })).toEqual(content)
    expect(read(Array.from(output), { format: plainFormat })).toEqual(content)
  })

  it('an output that is cut off before its arguments is still a call', () => {
    const { calls } = read(['{"name":"now","arguments":'], { format: plainFormat }, true)
    expect(calls).toEqual([{ name: 'now', arguments: '' }])
  })

  it('arguments before the name are a call even if the object does not end', () => {
    const { calls } = read(['{"arguments":{"a":1},"name":"now"'], { format: plainFormat })
    expect(calls).toEqual([{ name: 'now', arguments: '{"a":1}' }])
  })

  it('a call without arguments gets an empty object', () => {
    const { calls } = read(['{"name":"now"}'], { format: plainFormat })
    expect(calls).toEqual([{ name: 'now', arguments: '{}' }])
  })
})

describe('the work of the parser grows in proportion to the output', () => {
  afterEach(() => {
    vi.restoreAllMocks()
  })

  const methods = ['indexOf', 'slice', 'trimEnd', 'trimStart'] as const

  /** The total length of the strings that are searched, cut or trimmed. */
  function charactersSeen(output: string, template: string): number {
    const pieces = output.match(/[\s\S]{1,4}/g) ?? []
    let seen = 0
    for (const method of methods) {
      const original = String.prototype[method] as (...args: unknown[]) => never
      vi.spyOn(String.prototype, method).mockImplementation(function (
        this: string,
        ...args: unknown[]
      ) {
        seen += this.length
        return original.apply(this, args)
      })
    }
    const reasoning = { open: '<think>', close: '</think>' }
    read(pieces, { format: findToolFormat(template), reasoning }, true)
    vi.restoreAllMocks()
    return seen
  }

  const templates = [
    '<function name= <param name=',
    '<function=',
    '<function= <parameter=',
    '<arg_key>',
    'minimax:tool_call',
    ']<]minimax[>[',
    '[TOOL_CALLS]',
    '<|tool_call_begin|>',
    '<｜tool▁call▁begin｜>',
    '<|tool_call:begin|>',
    '<tool_call>',
  ]
  const call = '{"name": "now", "arguments": {'
  const shapes: Readonly<Record<string, (opening: string, count: number) => string>> = {
    'many openings': (opening, count) => opening.repeat(count),
    'a long argument': (opening, count) => `${opening}${call}"a": "${'x'.repeat(count * 20)}`,
    'many line breaks': (opening, count) => '\n'.repeat(count * 10) + opening,
  }

  it.each(templates.flatMap((one) => Object.keys(shapes).map((shape) => [one, shape] as const)))(
    '%s: %s',
    (template, shape) => {
      const opening = findToolFormat(template).openings[0] ?? ''
      const seenIn = (count: number): number =>
        charactersSeen(shapes[shape]?.(opening, count) ?? '', template)
      expect(seenIn(400) / seenIn(100)).toBeLessThan(5)
    },
  )

  it('drafts of calls in reasoning are looked at once', () => {
    const lookups = (count: number): number => {
      let reads = 0
      const tool = {
        get name() {
          reads++
          return 'now'
        },
      }
      const output = `<think>${`<tool_call>${call}}}</tool_call>`.repeat(count)}x`
      const reasoning = { open: '<think>', close: '</think>' }
      read([output], { format: findToolFormat('<tool_call>'), reasoning, tools: [tool] })
      return reads
    }
    expect(lookups(400) / lookups(100)).toBeLessThan(5)
  })
})
