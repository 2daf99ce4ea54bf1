/** Reads the messages of a chat request. */

import type { ChatMessage, ToolCall } from '../../generation/inference-engine.ts'
import { expectChoice, expectList, expectText, FieldReader, wrongType } from './field-reader.ts'
import { wrongValue } from './field-reader.ts'

const roles = ['system', 'developer', 'user', 'assistant', 'tool'] as const

/** The conversation, or an error that names the message and the field. */
export function readMessages(value: unknown): readonly ChatMessage[] {
  return expectList('messages', value, { min: 1 }).map((message, at) =>
    readMessage(message, `messages[${at}]`),
  )
}

function readMessage(value: unknown, path: string): ChatMessage {
  const fields = new FieldReader(value, path)
  const role = expectChoice(`${path}.role`, fields.required('role'), roles)
  const toolCalls = role === 'assistant' ? readToolCalls(fields) : undefined
  const name = fields.string('name', 256)
  return {
    role: role === 'developer' ? 'system' : role,
    content: readContent(fields, toolCalls !== undefined),
    ...(name === undefined ? {} : { name }),
    ...(toolCalls === undefined ? {} : { toolCalls }),
    ...(role === 'tool' ? { toolCallId: fields.requiredString('tool_call_id', 256) } : {}),
  }
}

/** An assistant that only asked for tools need not have said anything. */
function readContent(fields: FieldReader, isOptional: boolean): string {
  const content = isOptional ? (fields.raw('content') ?? '') : fields.required('content')
  if (typeof content === 'string') return content
  const path = fields.pathOf('content')
  if (!Array.isArray(content)) {
    throw wrongType(path, 'a string or an array of content parts', content)
  }
  return expectList(path, content, { min: 1 })
    .map((part, at) => readPart(part, `${path}[${at}]`))
    .join('')
}

function readPart(value: unknown, path: string): string {
  const fields = new FieldReader(value, path)
  const type = expectText(`${path}.type`, fields.required('type'), 64)
  if (type !== 'text') {
    throw wrongValue(
      `${path}.type`,
      `Invalid value: '${type}'. This model reads text only; supported values are: 'text'.`,
    )
  }
  return fields.requiredString('text')
}

function readToolCalls(fields: FieldReader): readonly ToolCall[] | undefined {
  const calls = fields.raw('tool_calls')
  if (calls === undefined) return undefined
  const path = fields.pathOf('tool_calls')
  return expectList(path, calls, { min: 1, max: 128 }).map((value, at) => {
    const call = new FieldReader(value, `${path}[${at}]`)
    const called = new FieldReader(call.required('function'), call.pathOf('function'))
    expectChoice(call.pathOf('type'), call.raw('type') ?? 'function', ['function'])
    return {
      id: call.requiredString('id', 256),
      name: called.requiredString('name', 256),
      arguments: called.requiredString('arguments'),
    }
  })
}
