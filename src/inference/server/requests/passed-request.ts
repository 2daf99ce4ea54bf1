/**
 * Bodies for an engine that passes requests on: only the fields that this server itself reads are
 * checked. The rest goes unchanged to the server behind the engine, which checks it.
 */

import { annotate, z } from '../../schema/schema.ts'
import { isFields } from '../../generation/fields/answer-fields.ts'
import type { ChatMessage, Sampling } from '../../generation/inference-engine.ts'
import type {
  PassedCall,
  PassedInput,
  PassedMessage,
  PassedTool,
  WireFields,
} from '../../generation/pass-through.ts'
import { textOf } from '../../generation/fields/message-text.ts'
import type { CompletionBody, RequestBounds } from './request-schema.ts'

/**
 * The schemas of bodies for an engine that passes requests on; fields that are not named are free.
 */
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
  model: z.string().max(256).nullish().describe('A served name. Default: the first one.'),
  stream: z.boolean().nullish().describe('Whether the answer comes as server-sent events.'),
  stream_options: z
    .looseObject({ include_usage: z.boolean().nullish() })
    .nullish()
    .describe('Needs `stream`.'),
  priority: z.int().min(-1000).max(1000).nullish().describe('Higher is served first. Default 0.'),
  timeout: z.number().gt(0).max(86_400).nullish().describe('Seconds until the request fails.'),
}

/** The conversation, with every message, tool and field as the client wrote it. */
export function toPassedChat({ messages, tools, ...body }: PassedChatBody): PassedInput {
  return {
    kind: 'chat',
    messages: messages.map(toPassedMessage),
    ...(tools === undefined || tools === null ? {} : { tools: tools.map(toPassedTool) }),
    fields: passedFields(body),
  }
}

/** Converts each prompt to one input. */
export function toPassedPrompts({ prompt, ...body }: PassedCompletionBody): PassedInput[] {
  const fields = passedFields(body)
  return passedPromptsOf(prompt).map((one): PassedInput => {
    if (typeof one === 'string') return { kind: 'text', text: one, fields }
    const isTokens = Array.isArray(one) && one.every((token) => typeof token === 'number')
    return { kind: 'text', text: '', ...(isTokens ? { tokens: one } : { wire: one }), fields }
  })
}

/** As llama-server reads it, a list with a number is one prompt of token ids and texts. */
function passedPromptsOf(prompt: PassedCompletionBody['prompt']): readonly unknown[] {
  if (typeof prompt === 'string') return [prompt]
  return prompt.some((item) => typeof item === 'number') ? [prompt] : prompt
}

/** Converts each prompt to a chat with one user message. */
export function toPassedQuestions({ prompts, ...body }: PassedGenerateBody): PassedInput[] {
  const fields = passedFields(body)
  const ask = (asked: string): PassedInput => ({
    kind: 'chat',
    messages: [{ role: 'user', content: asked }],
    fields,
  })
  return prompts.map(ask)
}

/** The prompts as a list; each one is a text or a list of token ids. */
export function promptsOf(prompt: CompletionBody['prompt']): readonly (string | number[])[] {
  if (typeof prompt === 'string') return [prompt]
  const isTokens = typeof prompt[0] === 'number'
  return isTokens ? [prompt as number[]] : (prompt as (string | number[])[])
}

const readNames: ReadonlySet<string> = new Set([...Object.keys(ownFields), 'n'])

/** Keeps `stream: true`: without it, the engine may ask its server for a whole answer. */
function passedFields(body: WireFields): WireFields {
  const given = Object.entries(body).filter(
    ([name, value]) => value !== null && (!readNames.has(name) || (name === 'stream' && value)),
  )
  return Object.fromEntries(given)
}

function toPassedMessage(wire: PassedChatBody['messages'][number]): PassedMessage {
  const { role, tool_calls: calls } = wire
  return {
    // A role that is unknown here matters only to the server behind the engine.
    role: role === 'developer' ? 'system' : (role as ChatMessage['role']),
    content: textOf(wire.content),
    ...(Array.isArray(calls) ? { toolCalls: calls.filter(isFields).map(toPassedCall) } : {}),
    wire,
  }
}

function toPassedCall(wire: WireFields): PassedCall {
  const { id, function: called } = wire
  const { name, arguments: given } = isFields(called) ? called : {}
  return { id: stringOr(id), name: stringOr(name), arguments: stringOr(given), wire }
}

function toPassedTool(wire: WireFields): PassedTool {
  const { function: described } = wire
  const { name, description } = isFields(described) ? described : wire
  const text = typeof description === 'string' ? { description } : {}
  return { name: stringOr(name), ...text, wire }
}

const stringOr = (value: unknown): string => (typeof value === 'string' ? value : '')

/** The sampling that telemetry and the format of the answer need, read from the passed fields. */
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
