import { describe, expect, it } from 'vitest'
import {
  callSchema,
  parseToolCalls,
  ToolCallHolder,
} from '../../../../src/inference/engines/llama/tool-calls.ts'

const names = new Set(['add', 'stop'])
const tools = [...names].map((name) => ({ name }))

function hold(...pieces: readonly string[]) {
  const holder = new ToolCallHolder(tools)
  const told = pieces.map((piece) => holder.push(piece))
  const { text, toolCalls } = holder.end()
  return { told, text, calls: toolCalls.map((call) => `${call.name} ${call.arguments}`) }
}

describe('tool calls', () => {
  it.each([
    ['{"name": "add", "arguments": {"a": 1}}', ['add {"a":1}']],
    ['{"name": "add", "parameters": {"a": 1}}', ['add {"a":1}']],
    [' {"name": "stop"} ', ['stop {}']],
    ['{"name": "add", "arguments": "{\\"a\\": 1}"}', ['add {"a": 1}']],
    ['[{"name": "add"}, {"name": "stop"}]', ['add {}', 'stop {}']],
    ['<tool_call>\n{"name": "add"}\n</tool_call>', ['add {}']],
    ['<tool_call>{"name": "add"}</tool_call><tool_call>{"name": "stop"}', ['add {}', 'stop {}']],
    ['<tool_call>\u00a0{"name": "add"}\u00a0</tool_call>', ['add {}']],
    ['{"name": "other"}', []],
    ['{"name": "add"} and more', []],
    ['{"name": 3}', []],
    ['[]', []],
    ['null', []],
    ['I would add them.', []],
    ['', []],
  ])('are parsed from %s', (text, calls) => {
    expect(parseToolCalls(text, names).map((call) => `${call.name} ${call.arguments}`)).toEqual(
      calls,
    )
  })

  it('are parsed in linear time in a text of a million spaces', () => {
    const blanks = ' '.repeat(500_000)
    expect(parseToolCalls(`<tool_call>${blanks}x${blanks}y`, names)).toEqual([])
    const call = `<tool_call>${blanks}{"name": "add"}${blanks}</tool_call>`
    expect(parseToolCalls(call, names)).toMatchObject([{ name: 'add' }])
  })

  it('each have an id of their own', () => {
    const calls = parseToolCalls('[{"name": "add"}, {"name": "add"}]', names)
    expect(new Set(calls.map(({ id }) => id)).size).toBe(2)
  })

  it('do not delay text that is no call', () => {
    expect(hold('I', ' <b>can', '</b>')).toEqual({
      told: ['I', ' <b>can', '</b>'],
      text: '',
      calls: [],
    })
  })

  it('are not part of the text before them', () => {
    expect(hold('Well. <tool', '_call>{"name": ', '"add"}</tool_call>')).toEqual({
      told: ['Well. ', '', ''],
      text: '',
      calls: ['add {}'],
    })
  })

  it('that turn out to be text are returned as text', () => {
    expect(hold(' ', '{"a":', ' 1}')).toEqual({
      told: ['', '', ''],
      text: ' {"a": 1}',
      calls: [],
    })
  })

  it('that are required may name any of the tools', () => {
    expect(callSchema(tools)).toMatchObject({
      oneOf: [
        { properties: { name: { const: 'add' } } },
        { properties: { name: { const: 'stop' } } },
      ],
    })
    expect(callSchema([{ name: 'add', parameters: { type: 'null' } }])).toMatchObject({
      properties: { name: { const: 'add' }, arguments: { type: 'null' } },
      required: ['name', 'arguments'],
    })
  })
})
