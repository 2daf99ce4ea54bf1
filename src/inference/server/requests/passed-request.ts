/**
 * Bodies for an engine that passes requests on. Only the fields that this server reads are checked;
 * the server behind the engine gets the other fields unchanged and checks them.
 */

import { annotate, z } from '../../schema/schema.ts'
import type { Sampling } from '../../generation/inference-engine.ts'
import { toPassedInput } from '../../generation/fields/message-text.ts'
import type { PassedInput, WireFields } from '../../generation/pass-through.ts'
import {
  type CompletionBody,
  model,
  queueFields,
  type RequestBounds,
  streamFields,
} from './request-schema.ts'

/** The schemas of bodies for an engine that passes requests on. Other fields may have any value. */
export function createPassedSchemas({ maxPrompts }: RequestBounds) {
  const n = z.int().min(1).max(Math.min(128, maxPrompts)).nullish().describe('Number of answers.')
  const piece = z.union([z.string(), z.int()])
  const item = z.union([z.string(), z.int(), z.array(piece).min(1), z.looseObject({})])
  const prompts = z.union([z.string(), z.array(item).min(1)])
  return {
    ChatCompletionRequest: z.looseObject({
      ...ownFields,
      messages: z.array(message).min(1).describe('The conversation so far.'),
      tools: z.array(z.looseObject({})).max(128).nullish(),
      n,
    }),
    CompletionRequest: z.looseObject({
      ...ownFields,
      prompt: annotate(prompts, { expected: 'a string, an array of strings, or token ids' }),
      n,
    }),
    GenerateRequest: z.looseObject({
      ...ownFields,
      prompts: z.array(z.string()).max(maxPrompts).describe('One answer is given to each.'),
    }),
  }
}

type PassedSchemas = ReturnType<typeof createPassedSchemas>
export type PassedChatBody = z.infer<PassedSchemas['ChatCompletionRequest']>
export type PassedCompletionBody = z.infer<PassedSchemas['CompletionRequest']>
export type PassedGenerateBody = z.infer<PassedSchemas['GenerateRequest']>

const content = annotate(z.union([z.string(), z.array(z.unknown())]), {
  expected: 'a string or an array of content parts',
})
const message = z.looseObject({ role: z.string().max(64), content: content.nullish() })

/** The fields that this server reads. */
const ownFields = {
  model,
  ...streamFields,
  ...queueFields,
}

export const toPassedChat = (body: PassedChatBody): PassedInput =>
  toPassedInput('chat', passedFields(body))

/** Converts each prompt to one input. */
export function toPassedPrompts({ prompt, ...body }: PassedCompletionBody): PassedInput[] {
  const fields = passedFields(body)
  // As in llama-server, a list that contains a number is one prompt of token ids and texts.
  const isOne = typeof prompt === 'string' || prompt.some((item) => typeof item === 'number')
  const prompts = isOne ? [prompt] : prompt
  return prompts.map((one: unknown) => toPassedInput('text', { ...fields, prompt: one }))
}

/** Converts each prompt to a chat with one user message. */
export function toPassedQuestions({ prompts, ...body }: PassedGenerateBody): PassedInput[] {
  const fields = passedFields(body)
  return prompts.map((text) =>
    toPassedInput('chat', { ...fields, messages: [{ role: 'user', content: text }] }),
  )
}

/** The prompts as a list. Each prompt is a text or a list of token ids. */
export function promptsOf(prompt: CompletionBody['prompt']): readonly (string | number[])[] {
  if (typeof prompt === 'string') return [prompt]
  const isTokens = typeof prompt[0] === 'number'
  return isTokens ? [prompt as number[]] : (prompt as (string | number[])[])
}

const readNames: ReadonlySet<string> = new Set([...Object.keys(ownFields), 'n'])

/** Keeps `stream: true`, because the engine may otherwise ask its server for a whole answer. */
function passedFields(body: WireFields): WireFields {
  const given = Object.entries(body).filter(
    ([name, value]) => value !== null && (!readNames.has(name) || (name === 'stream' && value)),
  )
  return Object.fromEntries(given)
}

/** Reads the sampling options that telemetry and the format of the answer need. */
export function passedSampling(body: WireFields, isChat: boolean): Partial<Sampling> {
  const maxTokens = body['max_completion_tokens'] ?? body['max_tokens']
  const { temperature, top_p: topP, top_k: topK, seed, logprobs, top_logprobs: top } = body
  const alternatives = isChat ? (logprobs === true ? (top ?? 0) : null) : logprobs
  return {
    ...numberField('maxTokens', maxTokens),
    ...numberField('temperature', temperature),
    ...numberField('topP', topP),
    ...numberField('topK', topK),
    ...numberField('seed', seed),
    logprobs: typeof alternatives === 'number' ? alternatives : null,
  }
}

const numberField = (name: keyof Sampling, value: unknown): Partial<Sampling> =>
  typeof value === 'number' ? { [name]: value } : {}
