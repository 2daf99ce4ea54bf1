/** Converts the prompts of AI tasks to requests for the text generator. Pure. */

import type { Refusal } from '../backends/backend.ts'
import type { PromptSpec, SamplingOptions } from '../tasks/spec.ts'
import type { PromptRequest } from './generation/text-generator.ts'
import type { ChatMessage, OutputFormat, Sampling } from './generation/inference-engine.ts'

export function toPromptRequest(
  uid: string,
  { sampling, priority }: PromptSpec,
  prompt: string,
  signal: AbortSignal,
): PromptRequest {
  const messages: ChatMessage[] = []
  const { systemPrompt } = sampling
  if (systemPrompt !== undefined) messages.push({ role: 'system', content: systemPrompt })
  messages.push({ role: 'user', content: prompt })
  return {
    input: { kind: 'chat', messages },
    sampling: toSampling(sampling),
    priority,
    // The time-out of a task begins with its execution, not in the queue.
    timeoutSeconds: null,
    signal,
    isBounded: false,
    taskId: uid,
  }
}

function toSampling(options: SamplingOptions): Partial<Sampling> {
  const { maxTokens, temperature, topP, topK, stop, seed, responseFormat } = options
  const format = responseFormat === undefined ? undefined : toFormat(responseFormat)
  return {
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(topP === undefined ? {} : { topP }),
    ...(topK === undefined ? {} : { topK }),
    ...(stop === undefined ? {} : { stop: typeof stop === 'string' ? [stop] : stop }),
    ...(seed === undefined ? {} : { seed }),
    ...(format === undefined || 'message' in format ? {} : { format }),
  }
}

/** Why the `responseFormat` of a task is invalid; `null` if it is valid. */
export function refuseFormat({ sampling }: PromptSpec): Refusal | null {
  const { responseFormat } = sampling
  const format = responseFormat === undefined ? null : toFormat(responseFormat)
  return format !== null && 'message' in format ? format : null
}

/** As in the chat-completions API: `{ type, json_schema: { schema } }`. */
function toFormat(given: object): OutputFormat | Refusal {
  const { type, json_schema: wrapper } = given as { type?: unknown; json_schema?: unknown }
  if (type === 'text') return { kind: 'text' }
  if (type === 'json_object') return { kind: 'json_object' }
  if (type !== 'json_schema') {
    const message = 'expected "text", "json_object" or "json_schema"'
    return { field: 'responseFormat.type', message }
  }
  const schema = (wrapper as { schema?: unknown } | undefined)?.schema
  if (typeof schema === 'object' && schema !== null) return { kind: 'json_schema', schema }
  return { field: 'responseFormat.json_schema.schema', message: 'expected a JSON schema' }
}
