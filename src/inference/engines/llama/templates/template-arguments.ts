/**
 * The variables that a request passes to the chat template, such as whether the model reasons.
 * Pure.
 */

import type { ChatTemplate } from './chat-template.ts'
import type { ChatInput } from './template-messages.ts'

export class ArgumentError extends Error {
  readonly param: string
  readonly clientCode: 'unsupported_parameter' | 'unsupported_value'

  constructor(param: string, message: string, clientCode: ArgumentError['clientCode']) {
    super(message)
    this.param = param
    this.clientCode = clientCode
  }
}

function unknownArgumentError(param: string, template: TemplateNamesOnly | null): ArgumentError {
  const reason =
    template === null
      ? `this model has no chat template, which would read '${param}'`
      : `the chat template of this model does not read '${param}'`
  return new ArgumentError(param, `Unsupported parameter: ${reason}.`, 'unsupported_parameter')
}

function unknownEffortError(effort: string): ArgumentError {
  const known = efforts.map((one) => `'${one}'`).join(', ')
  const got = effort.length > 64 ? `${effort.slice(0, 61)}...` : effort
  const message = `Invalid value: '${got}'. Supported values are: ${known}.`
  return new ArgumentError('reasoning_effort', message, 'unsupported_value')
}

/** The efforts of the public API. A template may accept other efforts. */
const efforts: readonly string[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh']

const reservedNames: ReadonlySet<string> = new Set([
  'messages',
  'tools',
  'functions',
  'add_generation_prompt',
  'bos_token',
  'eos_token',
])

/** Throws for variables that the template does not read. If it cannot be parsed, accepts all. */
export function toTemplateArguments(chat: ChatInput, template: TemplateNamesOnly | null): object {
  const { templateArguments: given = {}, reasoningEffort } = chat
  for (const name of Object.keys(given)) {
    if (reservedNames.has(name) || !readsName(template, name)) {
      throw unknownArgumentError(`chat_template_kwargs.${name}`, template)
    }
  }
  return { ...toEffortArguments(reasoningEffort, template), ...given }
}

type TemplateNamesOnly = Pick<ChatTemplate, 'names'>

const readsName = (template: TemplateNamesOnly | null, name: string): boolean =>
  template !== null && (template.names === null || template.names.variables.has(name))

/** A template without efforts may still be able to switch reasoning off. */
function toEffortArguments(effort: string | undefined, template: TemplateNamesOnly | null): object {
  if (effort === undefined) return {}
  if (readsName(template, 'reasoning_effort')) return { reasoning_effort: effort }
  if (!readsName(template, 'enable_thinking'))
    throw unknownArgumentError('reasoning_effort', template)
  if (!efforts.includes(effort)) throw unknownEffortError(effort)
  return { enable_thinking: effort !== 'none' }
}
