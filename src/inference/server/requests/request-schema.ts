/** The request bodies as schemas, from which types, checks and the OpenAPI document are derived. */

import { annotate, z } from '../../schema/schema.ts'

export interface RequestBounds {
  readonly contextLength: number
  readonly maxPrompts: number
  readonly promptLimitName: string
  readonly acceptsTokenIds: boolean
}

/**
 * A field that is `null` is treated as missing. In the OpenAPI document, the schemas have the same
 * names as here.
 */
export function createRequestSchemas(bounds: RequestBounds) {
  const { maxPrompts, acceptsTokenIds } = bounds
  const n = integer(1, Math.min(128, maxPrompts))
  return {
    ChatCompletionRequest: z.object({
      model,
      messages: z.array(message).min(1).describe('The conversation so far.'),
      tools: z.array(tool).max(128).nullish().describe('Functions that the model may call.'),
      tool_choice: toolChoice.nullish(),
      ...templateFields,
      ...formatFields,
      user,
      n: n.describe('Number of answers. Default 1.'),
      logprobs: z.boolean().nullish().describe('Whether to return log probabilities.'),
      top_logprobs: integer(0, 20).describe('Alternatives for each token; needs `logprobs`.'),
      ...samplingFields(bounds),
      ...streamFields,
    }),
    CompletionRequest: z.object({
      model,
      prompt: (acceptsTokenIds ? textOrTokenPrompts(maxPrompts) : textPrompts(maxPrompts)).describe(
        'One prompt, or several that are answered separately.',
      ),
      user,
      n: n.describe('Number of answers to each prompt. Default 1.'),
      best_of: integer(1, Math.min(20, maxPrompts)).describe(
        'Generates this many answers, and returns the `n` with the highest mean log probability.',
      ),
      echo: z.boolean().nullish().describe('Whether answers begin with their prompt.'),
      logprobs: integer(0, 5).describe(
        'Returns log probabilities, with this many alternatives for each token.',
      ),
      ...formatFields,
      ...samplingFields(bounds, 0),
      ...streamFields,
    }),
    GenerateRequest: z.object({
      prompts: z.array(z.string()).max(maxPrompts).describe('One answer is given to each.'),
      model,
      ...samplingFields(bounds),
    }),
    EmbeddingRequest: embeddingSchema(maxPrompts),
    TokenizeRequest: z.object({
      model,
      content: z.string().nullish().describe('The text; used instead of `prompt`.'),
      prompt: z.string().nullish().describe('The text.'),
    }),
    DetokenizeRequest: z.object({
      model,
      tokens: z.array(z.int().min(0)).describe('The ids of the tokens.'),
    }),
  }
}

/** The body of `/v1/embeddings`. */
const embeddingSchema = (maxPrompts: number) =>
  z.object({
    model,
    input: textOrTokenPrompts(maxPrompts, z.string().min(1)).describe(
      'One text, or several that are embedded separately.',
    ),
    encoding_format: z
      .enum(['float', 'base64'])
      .nullish()
      .describe('`base64` for the bytes of 32-bit floats. Default `float`.'),
    dimensions: z
      .int()
      .min(1)
      .nullish()
      .describe('Keeps this many numbers, normalized again. Default: all.'),
    user,
    ...queueFields,
  })

const textPrompts = (maxPrompts: number) =>
  annotate(z.union([z.string(), z.array(z.string()).min(1).max(maxPrompts)]), {
    expected: 'a string or an array of strings',
  })

const textOrTokenPrompts = (maxPrompts: number, text = z.string()) => {
  const tokens = z.array(z.int()).min(1)
  const lists = [z.array(text).min(1).max(maxPrompts), tokens] as const
  return annotate(z.union([text, ...lists, z.array(tokens).min(1).max(maxPrompts)]), {
    expected: 'a string, an array of strings, or token ids',
  })
}

export type RequestSchemas = ReturnType<typeof createRequestSchemas>
export type ChatBody = z.infer<RequestSchemas['ChatCompletionRequest']>
export type CompletionBody = z.infer<RequestSchemas['CompletionRequest']>
export type GenerateBody = z.infer<RequestSchemas['GenerateRequest']>
export type EmbeddingBody = z.infer<RequestSchemas['EmbeddingRequest']>
export type MessageBody = ChatBody['messages'][number]

export const model = z
  .string()
  .max(256)
  .nullish()
  .describe('A served name. Default: the first one.')
const user = z.string().max(512).nullish().describe('Accepted and not used.')

const shortText = z.string().max(256)
const name = shortText.nullish().describe('The name of the participant.')

const textOnly =
  "This model reads text only (the engines 'process' and 'openai' pass images and audio on)"

const textPart = z.object({
  type: annotate(z.literal('text'), { reason: textOnly }),
  text: z.string(),
})
const content = annotate(z.union([z.string(), z.array(textPart).min(1)]), {
  expected: 'a string or an array of content parts',
})

const toolCall = z.object({
  function: z.object({
    name: shortText,
    arguments: z.string().describe('JSON, as the model wrote it.'),
  }),
  type: z.literal('function').nullish(),
  id: shortText,
})

/** The content is optional, because a message with tool calls may have none. */
const assistantMessage = z
  .object({
    role: z.literal('assistant'),
    content: content.nullish().describe('Required unless there are `tool_calls`.'),
    name,
    tool_calls: z.array(toolCall).min(1).max(128).nullish(),
    reasoning_content: z.string().nullish().describe('Its reasoning before the answer.'),
    reasoning: z.string().nullish().describe('The same as `reasoning_content`.'),
  })
  .superRefine(({ content: given, tool_calls: calls }, context) => {
    if (typeof given === 'string' || Array.isArray(given) || Array.isArray(calls)) return
    const path = ['content']
    context.addIssue({ code: 'invalid_type', expected: 'string', input: given, path })
  })

const message = z.discriminatedUnion('role', [
  z.object({ role: z.literal('system'), content, name }),
  z.object({ role: z.literal('developer').describe('The same as `system`.'), content, name }),
  z.object({ role: z.literal('user'), content, name }),
  assistantMessage,
  z.object({ role: z.literal('tool'), content, name, tool_call_id: shortText }),
])

const namePattern = /^[A-Za-z0-9_-]{1,64}$/
const toolName = annotate(z.string().max(64).regex(namePattern), {
  expected: '1 to 64 letters, digits, underscores and dashes',
})
const jsonSchema = z.looseObject({}).describe('A JSON schema.')

const tool = z.object({
  type: z.literal('function'),
  function: z.object({
    name: toolName,
    description: z.string().nullish(),
    parameters: jsonSchema.nullish(),
  }),
})

const toolChoice = annotate(
  z.union([
    z.enum(['none', 'auto', 'required']),
    z.object({ type: z.literal('function'), function: z.object({ name: toolName }) }),
  ]),
  { expected: "one of 'none', 'auto', 'required' or an object" },
).describe('Whether the model calls a tool, or which one. Needs `tools`, except for `none`.')

const templateFields = {
  parallel_tool_calls: z
    .boolean()
    .nullish()
    .describe('Whether one answer may have several calls. Default true. Needs `tools`.'),
  chat_template_kwargs: z
    .looseObject({})
    .nullish()
    .describe('Variables of the model’s chat template, such as `enable_thinking`.'),
  reasoning_effort: shortText
    .nullish()
    .describe('How much the model thinks, if its chat template knows it.'),
  continue_final_message: z
    .boolean()
    .nullish()
    .describe('Whether the answer continues the last message, a text of the assistant.'),
  add_generation_prompt: z
    .boolean()
    .nullish()
    .describe('The opposite of `continue_final_message`, which suffices.'),
}

const responseFormat = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('text') }),
    z.object({ type: z.literal('json_object'), schema: jsonSchema.nullish() }),
    z.object({
      type: z.literal('json_schema'),
      json_schema: z.object({ name: toolName.nullish(), schema: jsonSchema }),
    }),
  ])
  .describe('Plain text, any JSON object, or JSON that fits a schema.')

const jsonSchemaOrText = annotate(z.union([jsonSchema, z.string().max(262_144)]), {
  expected: 'an object or a string',
})

const regexSource = z.string().max(1024).nullish()
const choices = z.array(z.string().max(1024)).min(1).max(256).nullish()
const grammarText = z.string().max(65_536).nullish()

/** Fields that require a format of the answer, including those of vLLM and llama-server. */
const formatFields = {
  response_format: responseFormat.nullish(),
  guided_json: jsonSchemaOrText.nullish().describe('JSON that fits a schema.'),
  json_schema: jsonSchema.nullish().describe('The same as `guided_json`.'),
  guided_regex: regexSource.describe('A text that matches the expression as a whole.'),
  guided_choice: choices.describe('One of these.'),
  guided_grammar: grammarText.describe('A grammar of llama.cpp (GBNF).'),
  grammar: grammarText.describe('The same as `guided_grammar`.'),
  structured_outputs: z
    .object({
      json: jsonSchemaOrText.nullish(),
      regex: regexSource,
      choice: choices,
      grammar: grammarText,
      json_object: z.boolean().nullish(),
    })
    .nullish()
    .describe('The same as `guided_*`, by the later names of vLLM.'),
}

const stopText = z.string().min(1).max(1024)

const integer = (min: number, max: number) => z.int().min(min).max(max).nullish()
const probability = z.number().min(0).max(1).nullish()
const penaltyFactor = z.number().gt(0).max(10).nullish()
const penalty = z.number().min(-2).max(2).nullish()
const tokenId = annotate(z.string().regex(/^\d{1,9}$/), {
  expected: 'the id of a token (POST /tokenize returns it)',
})

/** Only text completions may request 0 tokens, to get just the prompt with `echo`. */
function samplingFields({ contextLength }: RequestBounds, minTokens = 1) {
  const tokens = z.int().min(minTokens).max(contextLength).nullish()
  return {
    max_tokens: tokens.describe('Most tokens of an answer. Default: the configuration’s.'),
    max_completion_tokens: tokens.describe('The same as `max_tokens`; not together with it.'),
    temperature: z.number().min(0).max(2).nullish().describe('0 always takes the likeliest token.'),
    top_p: probability.describe('Considers the likeliest tokens up to this total probability.'),
    top_k: integer(-1, 1_000_000).describe('Considers this many tokens; 0 and -1 consider all.'),
    min_p: probability.describe(
      'Leaves out tokens below this share of the likeliest one’s probability.',
    ),
    repetition_penalty: penaltyFactor.describe('Above 1, repeated tokens become less likely.'),
    repeat_penalty: penaltyFactor.describe('The same as `repetition_penalty`.'),
    presence_penalty: penalty.describe('Above 0, tokens of the answer so far become less likely.'),
    frequency_penalty: penalty.describe(
      'The same, multiplied by how often the answer has the token.',
    ),
    logit_bias: z
      .record(tokenId, z.number().min(-100).max(100))
      .nullish()
      .describe('Added to the logits of tokens, by their ids: -100 bans a token.'),
    seed: z.int().nullish().describe('Makes the choice of tokens repeatable.'),
    stop: annotate(z.union([stopText, z.array(stopText).max(16)]), {
      expected: 'a string or an array of strings',
    })
      .nullish()
      .describe('Texts that end an answer; they are not part of it.'),
    ignore_eos: z.boolean().nullish().describe('Whether the model’s end mark is ignored.'),
    ...queueFields,
  }
}

export const queueFields = {
  priority: z.int().min(-1000).max(1000).nullish().describe('Higher is served first. Default 0.'),
  timeout: z.number().gt(0).max(86_400).nullish().describe('Seconds until the request fails.'),
}

export const streamFields = {
  stream: z.boolean().nullish().describe('Whether the answer comes as server-sent events.'),
  stream_options: z
    .object({
      include_usage: z.boolean().nullish().describe('Whether a last chunk has the usage.'),
    })
    .nullish()
    .describe('Needs `stream`.'),
}
