/** What a request tells the model's chat template, such as whether the model thinks. Pure. */

import type { GenerationInput } from '../../../generation/inference-engine.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** A field that the template does not read, so that it would change nothing. */
export class UnknownArgument extends Error {
  readonly param: string

  constructor(param: string) {
    super(`the chat template of this model does not know '${param}'`)
    this.param = param
  }
}

/** Names that the caller of a template decides about. */
const reserved: ReadonlySet<string> = new Set([
  'messages',
  'tools',
  'add_generation_prompt',
  'bos_token',
  'eos_token',
])

/** The variables for a template; throws `UnknownArgument` for those that it does not read. */
export function templateArguments(chat: Chat, template: string): object {
  const { templateArguments: given = {}, reasoningEffort } = chat
  for (const name of Object.keys(given)) {
    if (reserved.has(name) || !reads(template, name)) {
      throw new UnknownArgument(`chat_template_kwargs.${name}`)
    }
  }
  return { ...effortArguments(reasoningEffort, template), ...given }
}

const reads = (template: string, name: string): boolean =>
  /^\w+$/.test(name) && new RegExp(`\\b${name}\\b`).test(template)

/** Templates that cannot say how much a model thinks may know how to switch it off. */
function effortArguments(effort: string | undefined, template: string): object {
  if (effort === undefined) return {}
  if (reads(template, 'reasoning_effort')) return { reasoning_effort: effort }
  if (reads(template, 'enable_thinking')) return { enable_thinking: effort !== 'none' }
  throw new UnknownArgument('reasoning_effort')
}
