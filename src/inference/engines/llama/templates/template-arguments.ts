/** The arguments of a request for the chat template, such as whether the model reasons. Pure. */

import type { GenerationInput } from '../../../generation/inference-engine.ts'
import type { ChatTemplate } from './chat-template.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** The error for a field that would have no effect, because the template does not read it. */
export class UnknownArgument extends Error {
  readonly param: string

  constructor(param: string, template: ReadNames | null) {
    const reason =
      template === null
        ? `this model has no chat template, which would read '${param}'`
        : `the chat template of this model does not read '${param}'`
    super(`Unsupported parameter: ${reason}.`)
    this.param = param
  }
}

/** The error for an effort that neither the template nor the public API knows. */
export class UnknownEffort extends Error {
  readonly param = 'reasoning_effort'

  constructor(effort: string) {
    const known = efforts.map((one) => `'${one}'`).join(', ')
    const got = effort.length > 64 ? `${effort.slice(0, 61)}...` : effort
    super(`Invalid value: '${got}'. Supported values are: ${known}.`)
  }
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
 * The variables for a template; throws `UnknownArgument` for those that it does not read. Without a
 * template (`null`) no variable is read. For a template that cannot be parsed all are accepted,
 * because rendering reports the error.
 */
export function templateArguments(chat: Chat, template: ReadNames | null): object {
  const { templateArguments: given = {}, reasoningEffort } = chat
  for (const name of Object.keys(given)) {
    if (reserved.has(name) || !reads(template, name)) {
      throw new UnknownArgument(`chat_template_kwargs.${name}`, template)
    }
  }
  return { ...effortArguments(reasoningEffort, template), ...given }
}

type ReadNames = Pick<ChatTemplate, 'names'>

const reads = (template: ReadNames | null, name: string): boolean =>
  template !== null && (template.names === null || template.names.variables.has(name))

/** A template without degrees of reasoning may still be able to switch reasoning off. */
function effortArguments(effort: string | undefined, template: ReadNames | null): object {
  if (effort === undefined) return {}
  if (reads(template, 'reasoning_effort')) return { reasoning_effort: effort }
  if (!reads(template, 'enable_thinking')) throw new UnknownArgument('reasoning_effort', template)
  if (!efforts.includes(effort)) throw new UnknownEffort(effort)
  return { enable_thinking: effort !== 'none' }
}
