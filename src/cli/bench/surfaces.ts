/** The APIs that `tutti bench` can call: the body of a request, and how to read its stream. */

import { isPlainObject } from '../../foundation/json-value.ts'

export interface BenchRequest {
  readonly model: string
  readonly prompt: string
  readonly maxTokens: number
}

export interface Surface {
  readonly path: string
  toBody(request: BenchRequest): object
  /** Whether a part of the stream carries a piece of the answer. */
  hasText(part: Readonly<Record<string, unknown>>): boolean
}

const streamOptions = { stream: true, stream_options: { include_usage: true } }

const firstChoice = ({ choices }: Readonly<Record<string, unknown>>): unknown =>
  Array.isArray(choices) ? choices[0] : undefined

const isText = (value: unknown): boolean => typeof value === 'string' && value !== ''

export const surfaces = {
  chat: {
    path: 'v1/chat/completions',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      messages: [{ role: 'user', content: prompt }],
      max_tokens: maxTokens,
      ...streamOptions,
    }),
    hasText(part) {
      const choice = firstChoice(part)
      const delta = isPlainObject(choice) ? choice['delta'] : undefined
      if (!isPlainObject(delta)) return false
      return isText(delta['content']) || isText(delta['reasoning_content'])
    },
  },
  completions: {
    path: 'v1/completions',
    toBody: ({ model, prompt, maxTokens }) => ({
      model,
      prompt,
      max_tokens: maxTokens,
      ...streamOptions,
    }),
    hasText(part) {
      const choice = firstChoice(part)
      return isPlainObject(choice) && isText(choice['text'])
    },
  },
} as const satisfies Readonly<Record<string, Surface>>

export type SurfaceName = keyof typeof surfaces
export const surfaceNames = Object.keys(surfaces) as SurfaceName[]
