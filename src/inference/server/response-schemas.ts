/** The JSON bodies that the server sends, as schemas for the OpenAPI document. */

import { z } from '../../schema/schema.ts'

const count = z.int().min(0)

const usage = z.object({ prompt_tokens: count, completion_tokens: count, total_tokens: count })
const finishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter'])
const detail = z.looseObject({}).nullable().describe('Log probabilities, if they were asked for.')

const toolCall = z.object({
  id: z.string(),
  type: z.literal('function'),
  function: z.object({ name: z.string(), arguments: z.string() }),
})

/** By the names that they have in the document. */
export const responseSchemas = {
  Error: z
    .object({
      error: z.object({
        message: z.string().describe('What is wrong, for a person.'),
        type: z.string().describe('The class of the error, which follows from the status.'),
        param: z.string().nullable().describe('The path of the wrong field.'),
        code: z.string().nullable().describe('A stable name, for a program.'),
      }),
    })
    .describe('Every error but those of `POST /generate`.'),
  GenerateError: z.object({
    status: z.literal('error'),
    message: z.string(),
    hostname: z.string(),
  }),
  Health: z.object({
    status: z.enum(['healthy', 'unhealthy']),
    reason: z.string().optional().describe('Why it is unhealthy.'),
    hostname: z.string(),
    initialized: z.boolean(),
    endpoint: z.string(),
    mode: z.literal('service'),
    batch_config: z.object({
      max_batch_size: count,
      max_batch_wait_ms: z.number().min(0),
      pending_requests: count,
    }),
  }),
  Status: z.object({ status: z.string(), reason: z.string().optional() }),
  Model: z.object({
    id: z.string(),
    object: z.literal('model'),
    created: z.int(),
    owned_by: z.string(),
  }),
  ModelList: z.object({
    object: z.literal('list'),
    data: z.array(z.looseObject({ id: z.string(), object: z.literal('model') })),
  }),
  Tokens: z.object({ tokens: z.array(z.int()), count }),
  ChatCompletion: z.object({
    id: z.string(),
    object: z.literal('chat.completion'),
    created: z.int(),
    model: z.string(),
    choices: z.array(
      z.object({
        index: count,
        message: z.object({
          role: z.literal('assistant'),
          content: z.string().nullable(),
          refusal: z.string().nullable(),
          tool_calls: z.array(toolCall).optional(),
        }),
        logprobs: detail,
        finish_reason: finishReason,
      }),
    ),
    usage,
    system_fingerprint: z.string().nullable(),
  }),
  Completion: z.object({
    id: z.string(),
    object: z.literal('text_completion'),
    created: z.int(),
    model: z.string(),
    choices: z.array(
      z.object({
        text: z.string(),
        index: count,
        logprobs: detail,
        finish_reason: finishReason,
      }),
    ),
    usage,
  }),
  Generated: z.object({
    status: z.literal('success'),
    hostname: z.string(),
    results: z
      .array(
        z.union([
          z.string(),
          z.object({ error: z.object({ code: z.string(), message: z.string() }) }),
        ]),
      )
      .describe('A text or an error for each prompt, in their order.'),
    num_prompts: count,
    total_time: z.number().min(0).describe('Seconds.'),
    avg_time_per_prompt: z.number().min(0).describe('Seconds.'),
  }),
} as const

export type ResponseName = keyof typeof responseSchemas
