/** The OpenAPI document of a server, generated from its routes and the schemas of their bodies. */

import { version } from '../../foundation/version.ts'
import type { HttpExchange } from '../../runtime/http/http-exchange.ts'
import type { Route } from '../../runtime/http/http-server.ts'
import { toJsonSchema, z } from '../schema/schema.ts'

export interface DocumentedRoute extends Route {
  readonly document: RouteDocument
  /** `false` if a request with a body is answered without its model. Default `true`. */
  readonly needsModel?: boolean
  /** Throws `HttpError` for a body that `answer` refuses. Generates nothing. */
  check?(exchange: HttpExchange, body: unknown): void
}

export interface RouteDocument {
  readonly summary: string
  /** The name of the schema of the request's body, in `OpenApiOptions.schemas`. */
  readonly body?: string
  /**
   * The name of the schema of a successful response. If absent, the document has no schema for it.
   */
  readonly ok?: string
  /** The name of the schema of an error. Default `Error`. */
  readonly failure?: string
  readonly isText?: boolean
  /** The content type of streamed responses. Absent if there are none. */
  readonly streamType?: string
}

export interface OpenApiOptions {
  readonly routes: readonly DocumentedRoute[]
  /** The schemas that routes name, besides `responseSchemas`. */
  readonly schemas: Readonly<Record<string, z.ZodType>>
  readonly endpoint: string
  readonly needsKey: boolean
}

export function createOpenApiDocument(options: OpenApiOptions): object {
  const { routes, endpoint, needsKey } = options
  const security = needsKey ? { security: [{ bearer: [] }, { header: [] }] } : {}
  const schemes = {
    bearer: { type: 'http', scheme: 'bearer' },
    header: { type: 'apiKey', in: 'header', name: 'x-api-key' },
  }
  return {
    openapi: '3.1.0',
    info: { title: 'tutti inference server', version },
    servers: [{ url: endpoint }],
    ...security,
    paths: toPaths(routes),
    components: {
      schemas: toSchemas(options),
      ...(needsKey ? { securitySchemes: schemes } : {}),
    },
  }
}

function toSchemas({ schemas }: OpenApiOptions): Record<string, object> {
  const all = { ...responseSchemas, ...schemas }
  const entries = Object.entries(all).map(([name, schema]) => {
    const { $schema: _, ...json } = toJsonSchema(schema, 'draft-2020-12')
    return [name, json]
  })
  return Object.fromEntries(entries) as Record<string, object>
}

function toPaths(routes: readonly DocumentedRoute[]): Record<string, object> {
  const paths: Record<string, object> = {}
  for (const route of routes) {
    const path = route.path.replace(/\*$/, '{name}')
    const name = { name: 'name', in: 'path', required: true, schema: { type: 'string' } }
    const parameters = path === route.path ? {} : { parameters: [name] }
    paths[path] = {
      ...paths[path],
      ...parameters,
      [route.method.toLowerCase()]: toOperation(route),
    }
  }
  return paths
}

function toOperation({ method, path, isPublic = false, document }: DocumentedRoute): object {
  const { summary, body, ok, failure = 'Error', isText = false, streamType } = document
  const type = isText ? 'text/plain' : 'application/json'
  const content = {
    [type]: { schema: ok === undefined ? {} : toReference(ok) },
    ...(streamType === undefined
      ? {}
      : { [streamType.split(';', 1)[0] ?? '']: { schema: { type: 'string' } } }),
  }
  const failed = { description: 'An error.', content: toJsonContent(failure) }
  return {
    operationId: `${method.toLowerCase()}${operationName(path)}`,
    summary,
    ...(isPublic ? { security: [] } : {}),
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: toJsonContent(body) } }),
    responses: { 200: { description: 'Success.', content }, default: failed },
  }
}

/** Converts a path to a name: `/v1/chat/completions` becomes `V1ChatCompletions`. */
const operationName = (path: string): string =>
  path
    .replace(/\*$/, 'name')
    .split(/[^A-Za-z0-9]+/)
    .map((word) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`)
    .join('')

const toJsonContent = (name: string): object => ({
  'application/json': { schema: toReference(name) },
})

const toReference = (name: string): object => ({ $ref: `#/components/schemas/${name}` })

const text = z.string()
const count = z.int().min(0)
const seconds = z.number().min(0).describe('Seconds.')

const usage = z.object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: z
    .looseObject({
      cached_tokens: count.optional().describe('Tokens of the prompt that came from the cache.'),
    })
    .optional(),
  completion_tokens_details: z
    .looseObject({ reasoning_tokens: count.optional().describe('Tokens of the reasoning.') })
    .optional(),
})

const completionShape = (object: string, choice: z.ZodRawShape) => ({
  id: text,
  object: z.literal(object),
  created: z.int(),
  model: text,
  choices: z.array(
    z.object({
      ...choice,
      index: count,
      logprobs: z.looseObject({}).nullable().describe('Log probabilities, if they were asked for.'),
      finish_reason: z.enum(['stop', 'length', 'tool_calls', 'content_filter']),
    }),
  ),
  usage,
})

const toolCall = z.object({
  id: text,
  type: z.literal('function'),
  function: z.object({ name: text, arguments: text }),
})

const message = z.object({
  role: z.literal('assistant'),
  content: text.nullable(),
  refusal: text.nullable(),
  tool_calls: z.array(toolCall).optional(),
})

const error = z.object({
  message: text.describe('The problem, for a person.'),
  type: text.describe('The class of the error, which follows from the status.'),
  param: text.nullable().describe('The path of the wrong field.'),
  code: text.nullable().describe('A stable name, for a program.'),
})

const model = z.object({
  id: text,
  object: z.literal('model'),
  created: z.int(),
  owned_by: text,
  loaded: z.boolean().describe('Whether a request is answered without loading the model.'),
  max_model_len: count.describe('Tokens of prompt and answer together.'),
})
const failedPrompt = z.object({ error: z.object({ code: text, message: text }) })

const responseSchemas = {
  Error: z.object({ error }).describe('Every error but those of `POST /generate`.'),
  GenerateError: z.object({ status: z.literal('error'), message: text, hostname: text, error }),
  Health: z.object({
    status: z.enum(['healthy', 'unhealthy']),
    reason: text.optional().describe('Why it is unhealthy.'),
    hostname: text,
    initialized: z.boolean(),
    endpoint: text,
    mode: z.literal('service'),
    batch_config: z.object({
      type: z.enum(['adaptive', 'fixed']),
      max_batch_size: count,
      max_batch_wait_ms: z.number().min(0),
      pending_requests: count,
    }),
  }),
  Status: z.object({ status: text, reason: text.optional() }),
  Model: model,
  ModelList: z.object({ object: z.literal('list'), data: z.array(model) }),
  Embeddings: z.object({
    object: z.literal('list'),
    data: z.array(
      z.object({
        object: z.literal('embedding'),
        index: count,
        embedding: z.union([z.array(z.number()), text]).describe('Numbers, or their base64.'),
      }),
    ),
    model: text,
    usage: z.object({ prompt_tokens: count, total_tokens: count }),
  }),
  Tokens: z.object({ tokens: z.array(z.int()), count, max_model_len: count }),
  TokenText: z.object({ content: text, prompt: text.describe('The same as `content`.') }),
  Prompt: z.object({ prompt: text, count: count.describe('The number of its tokens.') }),
  Server: z.looseObject({
    version: text,
    hostname: text,
    endpoint: text,
    uptime_seconds: seconds,
    models: z.array(text),
    max_model_len: count,
    workers: count,
    requests: z.object({ queued: count, running: count }),
    batch_config: z.looseObject({}),
    engine: text.optional(),
    total_slots: count.optional().describe('Requests that the engines handle at a time.'),
    chat_template: text.nullable().optional(),
    default_generation_settings: z.looseObject({}).optional(),
    routes: z.array(text),
  }),
  ChatCompletion: z.object({
    ...completionShape('chat.completion', { message }),
    system_fingerprint: text.nullable(),
  }),
  Completion: z.object(completionShape('text_completion', { text })),
  Generated: z.object({
    status: z.literal('success'),
    hostname: text,
    results: z
      .array(z.union([text, failedPrompt]))
      .describe('A text or an error for each prompt, in their order.'),
    num_prompts: count,
    total_time: seconds,
    avg_time_per_prompt: seconds,
  }),
} as const
