/** Reads the bodies that ask for raw text: `POST /v1/completions` and `POST /generate`. */

import { expectList, expectText, FieldReader, wrongType } from './field-reader.ts'
import {
  readIgnored,
  readModel,
  readSampling,
  readStreaming,
  readUrgency,
  type RequestRules,
  type TextRequest,
} from './text-request.ts'

/** A completion request; `echo` puts the prompt before its answer. */
export interface CompletionRequest extends TextRequest {
  readonly prompts: readonly string[]
  readonly isEcho: boolean
}

export function readCompletionRequest(body: unknown, rules: RequestRules): CompletionRequest {
  const fields = new FieldReader(body, '')
  const model = readModel(fields, rules)
  const prompts = readPrompts('prompt', fields.required('prompt'), rules)
  const most = Math.max(1, Math.min(128, Math.floor(rules.maxPrompts / prompts.length)))
  fields.string('user', 512)
  const request = {
    model,
    prompts,
    inputs: prompts.map((text) => ({ kind: 'text' as const, text })),
    n: fields.integer('n', { min: 1, max: most }) ?? 1,
    isEcho: fields.boolean('echo') ?? false,
    sampling: readSampling(fields, rules, {
      logprobs: fields.integer('logprobs', { min: 0, max: 5 }) ?? null,
    }),
    ...readUrgency(fields),
    ...readStreaming(fields),
  }
  return { ...request, ignored: readIgnored(fields, rules) }
}

/** A `/generate` request: one answer a prompt, as a user would ask it; never a stream. */
export function readGenerateRequest(body: unknown, rules: RequestRules): TextRequest {
  const fields = new FieldReader(body, '')
  const prompts = expectList('prompts', fields.required('prompts'), { max: rules.maxPrompts })
  const request = {
    model: readModel(fields, rules),
    inputs: prompts.map((prompt, at) => ({
      kind: 'chat' as const,
      messages: [{ role: 'user' as const, content: expectText(`prompts[${at}]`, prompt) }],
    })),
    n: 1,
    sampling: readSampling(fields, rules),
    ...readUrgency(fields),
    isStream: false,
    includesUsage: false,
  }
  return { ...request, ignored: readIgnored(fields, rules) }
}

function readPrompts(path: string, value: unknown, rules: RequestRules): readonly string[] {
  if (typeof value === 'string') return [value]
  if (!Array.isArray(value)) throw wrongType(path, 'a string or an array of strings', value)
  return expectList(path, value, { min: 1, max: rules.maxPrompts }).map((prompt, at) =>
    expectText(`${path}[${at}]`, prompt),
  )
}
