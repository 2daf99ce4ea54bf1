/** Bodies for the server behind the engine. Only the fields that tutti itself reads are checked. */

import { annotate, z } from '../../schema/schema.ts'
import type { Sampling } from '../../generation/inference-engine.ts'
import { toPassThroughInput } from '../../generation/fields/message-text.ts'
import type { PassThroughInput, WireFields } from '../../generation/pass-through.ts'
import {
  type CompletionBody,
  model,
  queueFields,
  type RequestBounds,
  streamFields,
} from './request-schema.ts'

/** Fields that the schemas do not describe may have any value. */
export function createPassThroughSchemas({ maxPrompts }: RequestBounds) {
  const n = z.int().min(1).max(Math.min(128, maxPrompts)).nullish().describe('Number of answers.')
  const piece = z.union([z.string(), z.int()])
  const item = z.union([z.string(), z.int(), z.array(piece).min(1), z.looseObject({})])
  const prompts = z.union([z.string(), z.array(item).min(1)])
  return {
    ChatCompletionRequest: z.looseObject({
      ...serverFields,
      messages: z.array(message).min(1).describe('The conversation so far.'),
      tools: z.array(z.looseObject({})).max(128).nullish(),
      n,
    }),
    CompletionRequest: z.looseObject({
      ...serverFields,
      prompt: annotate(prompts, { expected: 'a string, an array of strings, or token ids' }),
      n,
    }),
    GenerateRequest: z.looseObject({
      ...serverFields,
      prompts: z.array(z.string()).max(maxPrompts).describe('One answer is given to each.'),
    }),
  }
}

type PassThroughSchemas = ReturnType<typeof createPassThroughSchemas>
export type PassThroughChatBody = z.infer<PassThroughSchemas['ChatCompletionRequest']>
export type PassThroughCompletionBody = z.infer<PassThroughSchemas['CompletionRequest']>
export type PassThroughGenerateBody = z.infer<PassThroughSchemas['GenerateRequest']>

const content = annotate(z.union([z.string(), z.array(z.unknown())]), {
  expected: 'a string or an array of content parts',
})
const message = z.looseObject({ role: z.string().max(64), content: content.nullish() })

const serverFields = {
  model,
  ...streamFields,
  ...queueFields,
}

export const toPassThroughChat = (body: PassThroughChatBody): PassThroughInput =>
  toPassThroughInput('chat', selectPassedFields(body))

export function toPassThroughPrompts(body: PassThroughCompletionBody): PassThroughInput[] {
  const { prompt, ...rest } = body
  const fields = selectPassedFields(rest)
  // As in llama-server, a list that contains a number is one prompt of token ids and texts.
  const isOne = typeof prompt === 'string' || prompt.some((item) => typeof item === 'number')
  const prompts = isOne ? [prompt] : prompt
  return prompts.map((one: unknown) => toPassThroughInput('text', { ...fields, prompt: one }))
}

export function toPassThroughChats(body: PassThroughGenerateBody): PassThroughInput[] {
  const { prompts, ...rest } = body
  const fields = selectPassedFields(rest)
  return prompts.map((text) =>
    toPassThroughInput('chat', { ...fields, messages: [{ role: 'user', content: text }] }),
  )
}

export function toPromptList(prompt: CompletionBody['prompt']): readonly (string | number[])[] {
  if (typeof prompt === 'string') return [prompt]
  const isTokens = typeof prompt[0] === 'number'
  return isTokens ? [prompt as number[]] : (prompt as (string | number[])[])
}

const serverFieldNames: ReadonlySet<string> = new Set([...Object.keys(serverFields), 'n'])

/** Removes fields for this server except `stream: true`, which makes the engine stream. */
function selectPassedFields(body: WireFields): WireFields {
  const given = Object.entries(body).filter(
    ([name, value]) =>
      value !== null && (!serverFieldNames.has(name) || (name === 'stream' && value)),
  )
  return Object.fromEntries(given)
}

/** Returns the sampling options that telemetry and the format of the answer need. */
export function readSampling(body: WireFields, isChat: boolean): Partial<Sampling> {
  const maxTokens = body['max_completion_tokens'] ?? body['max_tokens']
  const { temperature, top_p: topP, top_k: topK, seed, logprobs, top_logprobs: top } = body
  const alternatives = isChat ? (logprobs === true ? (top ?? 0) : null) : logprobs
  return {
    ...toNumberField('maxTokens', maxTokens),
    ...toNumberField('temperature', temperature),
    ...toNumberField('topP', topP),
    ...toNumberField('topK', topK),
    ...toNumberField('seed', seed),
    logprobs: typeof alternatives === 'number' ? alternatives : null,
  }
}

const toNumberField = (name: keyof Sampling, value: unknown): Partial<Sampling> =>
  typeof value === 'number' ? { [name]: value } : {}
