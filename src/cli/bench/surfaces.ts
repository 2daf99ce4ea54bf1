/** The APIs that `tutti bench` can call: the body of a request, and how to read its stream. */

import { isPlainObject } from '../../foundation/json-value.ts'

export interface BenchRequest {
  readonly model: string
  readonly prompt: string
  readonly maxTokens: number
}

type Fields = Readonly<Record<string, unknown>>

export interface Surface {
  readonly path: string
  toBody(request: BenchRequest): object
  /** Whether a part of the stream carries a piece of the answer. */
  hasText(part: Fields): boolean
  /** Whether a part is the last one. Streams of the completions APIs end with `[DONE]` instead. */
  isLast?(part: Fields): boolean
  /** Returns the fields with the numbers of tokens. Default: `usage`. */
  readUsage?(part: Fields): unknown
  /** The names of the fields with the token numbers of the prompt and of the answer. */
  readonly usageNames: readonly [prompt: string, answer: string]
  /**
   * The field with the number of cached prompt tokens, if the number of prompt tokens excludes
   * them.
   */
  readonly cachedName?: string
}

const streamOptions = { stream: true, stream_options: { include_usage: true } }
const completionNames = ['prompt_tokens', 'completion_tokens'] as const
const tokenNames = ['input_tokens', 'output_tokens'] as const

const firstChoice = ({ choices }: Fields): unknown =>
  Array.isArray(choices) ? choices[0] : undefined

const isText = (value: unknown): boolean => typeof value === 'string' && value !== ''

/** Whether at least one of the named fields is a non-empty text. */
const hasAny = (value: unknown, ...names: readonly string[]): boolean =>
  isPlainObject(value) && names.some((name) => isText(value[name]))

const toMessages = (prompt: string): object => ({ messages: [{ role: 'user', content: prompt }] })

export const surfaces = {
  chat: {
    path: 'v1/chat/completions',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      ...toMessages(prompt),
      max_tokens: maxTokens,
      ...streamOptions,
    }),
    hasText(part) {
      const choice = firstChoice(part)
      return isPlainObject(choice) && hasAny(choice['delta'], 'content', 'reasoning_content')
    },
    usageNames: completionNames,
  },
  completions: {
    path: 'v1/completions',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      prompt,
      max_tokens: maxTokens,
      ...streamOptions,
    }),
    hasText: (part) => hasAny(firstChoice(part), 'text'),
    usageNames: completionNames,
  },
  responses: {
    path: 'v1/responses',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      input: prompt,
      max_output_tokens: maxTokens,
      store: false,
      stream: true,
    }),
    hasText: ({ type, delta }) => isText(delta) && String(type).endsWith('text.delta'),
    isLast: ({ type }) => type === 'response.completed' || type === 'response.incomplete',
    readUsage: ({ response }) => (isPlainObject(response) ? response['usage'] : undefined),
    usageNames: tokenNames,
  },
  messages: {
    path: 'v1/messages',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      ...toMessages(prompt),
      max_tokens: maxTokens,
      stream: true,
    }),
    hasText: ({ delta }) => hasAny(delta, 'text', 'thinking'),
    isLast: ({ type }) => type === 'message_stop',
    usageNames: tokenNames,
    cachedName: 'cache_read_input_tokens',
  },
  ollama: {
    path: 'api/chat',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      ...toMessages(prompt),
      options: { num_predict: maxTokens },
      stream: true,
    }),
    hasText: ({ message }) => hasAny(message, 'content', 'thinking'),
    isLast: ({ done }) => done === true,
    readUsage: (part) => part,
    usageNames: ['prompt_eval_count', 'eval_count'],
  },
} as const satisfies Readonly<Record<string, Surface>>

export type SurfaceName = keyof typeof surfaces
export const surfaceNames = Object.keys(surfaces) as SurfaceName[]
