/** Reads what an answer may be besides plain text: calls of tools, or JSON. */

import type { OutputFormat, ToolChoice, ToolDefinition } from '../../generation/inference-engine.ts'
import { expectChoice, expectList, FieldReader, wrongType, wrongValue } from './field-reader.ts'

const toolName = /^[A-Za-z0-9_-]{1,64}$/

export function readTools(fields: FieldReader): readonly ToolDefinition[] | undefined {
  const tools = fields.raw('tools')
  if (tools === undefined) return undefined
  return expectList('tools', tools, { max: 128 }).map((value, at) => {
    const tool = new FieldReader(value, `tools[${at}]`)
    expectChoice(tool.pathOf('type'), tool.required('type'), ['function'])
    const described = new FieldReader(tool.required('function'), tool.pathOf('function'))
    const description = described.string('description')
    const parameters = described.raw('parameters')
    return {
      name: readToolName(described),
      ...(description === undefined ? {} : { description }),
      ...(parameters === undefined
        ? {}
        : { parameters: expectSchema(described.pathOf('parameters'), parameters) }),
    }
  })
}

export function readToolChoice(
  fields: FieldReader,
  tools: readonly ToolDefinition[] | undefined,
): ToolChoice | undefined {
  const choice = fields.raw('tool_choice')
  if (choice === undefined) return undefined
  if (choice !== 'none' && (tools === undefined || tools.length === 0)) {
    throw wrongValue(
      'tool_choice',
      "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
    )
  }
  if (typeof choice === 'string') {
    return expectChoice('tool_choice', choice, ['none', 'auto', 'required'])
  }
  const chosen = new FieldReader(choice, 'tool_choice')
  expectChoice('tool_choice.type', chosen.required('type'), ['function'])
  const name = readToolName(new FieldReader(chosen.required('function'), 'tool_choice.function'))
  if (tools?.some((tool) => tool.name === name) === true) return { name }
  throw wrongValue(
    'tool_choice.function.name',
    `Invalid value for 'tool_choice.function.name': no tool in 'tools' is called '${name}'.`,
  )
}

export function readFormat(fields: FieldReader): OutputFormat | undefined {
  const format = fields.object('response_format')
  if (format === undefined) return undefined
  const type = expectChoice('response_format.type', format.required('type'), [
    'text',
    'json_object',
    'json_schema',
  ])
  if (type !== 'json_schema') return { kind: type }
  const described = new FieldReader(format.required('json_schema'), 'response_format.json_schema')
  described.string('name', 64)
  const path = 'response_format.json_schema.schema'
  return { kind: 'json_schema', schema: expectSchema(path, described.required('schema')) }
}

function readToolName(fields: FieldReader): string {
  const name = fields.requiredString('name', 64)
  if (toolName.test(name)) return name
  const path = fields.pathOf('name')
  throw wrongValue(
    path,
    `Invalid '${path}': expected 1 to 64 letters, digits, underscores and dashes.`,
  )
}

function expectSchema(path: string, value: unknown): object {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  throw wrongType(path, 'an object', value)
}
