/** What a request tells the model's chat template, such as whether the model thinks. Pure. */

import type { GenerationInput } from '../../../generation/inference-engine.ts'
import type { ChatTemplate } from './chat-template.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** A field that the template does not read, so that it would change nothing. */
export class UnknownArgument extends Error {
  readonly param: string

  constructor(param: string) {
    super(`Unsupported parameter: the chat template of this model does not read '${param}'.`)
    this.param = param
  }
}

/** Names that the caller of a template decides about. */
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
 * template (`null`) none is read; of one that cannot be parsed, rendering tells why.
 */
export function templateArguments(chat: Chat, template: ReadNames | null): object {
  const { templateArguments: given = {}, reasoningEffort } = chat
  for (const name of Object.keys(given)) {
    if (reserved.has(name) || !reads(template, name)) {
      throw new UnknownArgument(`chat_template_kwargs.${name}`)
    }
  }
  return { ...effortArguments(reasoningEffort, template), ...given }
}

type ReadNames = Pick<ChatTemplate, 'names'>

const reads = (template: ReadNames | null, name: string): boolean =>
  template !== null && (template.names === null || template.names.variables.has(name))

/** Templates that cannot say how much a model thinks may know how to switch it off. */
function effortArguments(effort: string | undefined, template: ReadNames | null): object {
  if (effort === undefined) return {}
  if (reads(template, 'reasoning_effort')) return { reasoning_effort: effort }
  if (reads(template, 'enable_thinking')) return { enable_thinking: effort !== 'none' }
  throw new UnknownArgument('reasoning_effort')
}
