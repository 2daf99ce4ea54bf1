/** The arguments of a request for the chat template, such as whether the model reasons. Pure. */

import type { GenerationInput } from '../../../generation/inference-engine.ts'
import type { ChatTemplate } from './chat-template.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** The error for a field or value that has no effect. */
export class ArgumentError extends Error {
  readonly param: string
  readonly clientCode: 'unsupported_parameter' | 'unsupported_value'

  constructor(param: string, message: string, clientCode: ArgumentError['clientCode']) {
    super(message)
    this.param = param
    this.clientCode = clientCode
  }
}

function unknownArgument(param: string, template: ReadNames | null): ArgumentError {
  const reason =
    template === null
      ? `this model has no chat template, which would read '${param}'`
      : `the chat template of this model does not read '${param}'`
  return new ArgumentError(param, `Unsupported parameter: ${reason}.`, 'unsupported_parameter')
}

/** The error for an effort that neither the template nor the public API knows. */
function unknownEffort(effort: string): ArgumentError {
  const known = efforts.map((one) => `'${one}'`).join(', ')
  const got = effort.length > 64 ? `${effort.slice(0, 61)}...` : effort
  const message = `Invalid value: '${got}'. Supported values are: ${known}.`
  return new ArgumentError('reasoning_effort', message, 'unsupported_value')
}

/** The efforts of the public API. A template that reads the effort itself may accept others. */
const efforts: readonly string[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh']

/** Names that clients may not set, because the engine sets them. */
const reserved: ReadonlySet<string> = new Set([
  'messages',
  'tools',
  'functions',
  'add_generation_prompt',
  'bos_token',
  'eos_token',
])

/**
 * The variables for a template. Throws an `ArgumentError` for variables that the template does not
 * read. Without a template (`null`), no variable is read. If a template cannot be parsed, all
 * variables are accepted: rendering reports the error.
 */
export function templateArguments(chat: Chat, template: ReadNames | null): object {
  const { templateArguments: given = {}, reasoningEffort } = chat
  for (const name of Object.keys(given)) {
    if (reserved.has(name) || !reads(template, name)) {
      throw unknownArgument(`chat_template_kwargs.${name}`, template)
    }
  }
  return { ...effortArguments(reasoningEffort, template), ...given }
}

type ReadNames = Pick<ChatTemplate, 'names'>

const reads = (template: ReadNames | null, name: string): boolean =>
  template !== null && (template.names === null || template.names.variables.has(name))

/** A template without levels of reasoning may still be able to switch reasoning off. */
function effortArguments(effort: string | undefined, template: ReadNames | null): object {
  if (effort === undefined) return {}
  if (reads(template, 'reasoning_effort')) return { reasoning_effort: effort }
  if (!reads(template, 'enable_thinking')) throw unknownArgument('reasoning_effort', template)
  if (!efforts.includes(effort)) throw unknownEffort(effort)
  return { enable_thinking: effort !== 'none' }
}
