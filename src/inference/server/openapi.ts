/** The OpenAPI document of a server, made from its routes and their schemas. */

import { version } from '../../foundation/version.ts'
import { toJsonSchema } from '../../schema/json-schema.ts'
import type { RequestReader } from './requests/request-reader.ts'
import { responseSchemas } from './response-schemas.ts'
import type { Route } from './router.ts'

export interface OpenApiOptions {
  readonly routes: readonly Route[]
  readonly schemas: RequestReader['schemas']
  /** The server's own address. */
  readonly endpoint: string
  /** Whether routes that are not open need an API key. */
  readonly needsKey: boolean
}

/** An OpenAPI 3.1 document that describes every route. */
export function createOpenApiDocument(options: OpenApiOptions): object {
  const { routes, endpoint, needsKey } = options
  const security = needsKey ? { security: [{ apiKey: [] }] } : {}
  const schemes = { apiKey: { type: 'http', scheme: 'bearer' } }
  return {
    openapi: '3.1.0',
    info: { title: 'tutti inference server', version },
    servers: [{ url: endpoint }],
    ...security,
    paths: pathsOf(routes),
    components: {
      schemas: schemasOf(options),
      ...(needsKey ? { securitySchemes: schemes } : {}),
    },
  }
}

function schemasOf({ schemas }: OpenApiOptions): Record<string, object> {
  const all = { ...responseSchemas, ...schemas }
  const entries = Object.entries(all).map(([name, schema]) => {
    const { $schema: _, ...json } = toJsonSchema(schema, 'draft-2020-12')
    return [name, json]
  })
  return Object.fromEntries(entries) as Record<string, object>
}

function pathsOf(routes: readonly Route[]): Record<string, object> {
  const paths: Record<string, object> = {}
  for (const route of routes) {
    const path = route.path.replace(/:rest\{.*\}$/, '{name}')
    const name = { name: 'name', in: 'path', required: true, schema: { type: 'string' } }
    const parameters = path === route.path ? {} : { parameters: [name] }
    paths[path] = { ...parameters, [route.method.toLowerCase()]: operationOf(route) }
  }
  return paths
}

function operationOf({ method, path, isOpen = false, document }: Route): object {
  const { summary, body, ok, failure = 'Error', isText = false, isStream = false } = document
  const type = isText ? 'text/plain' : 'application/json'
  const content = {
    [type]: { schema: ok === undefined ? {} : reference(ok) },
    ...(isStream ? { 'text/event-stream': { schema: { type: 'string' } } } : {}),
  }
  const failed = { description: 'An error.', content: jsonOf(failure) }
  return {
    operationId: `${method.toLowerCase()}${operationName(path)}`,
    summary,
    ...(isOpen ? { security: [] } : {}),
    ...(body === undefined ? {} : { requestBody: { required: true, content: jsonOf(body) } }),
    responses: { 200: { description: 'Success.', content }, default: failed },
  }
}

/** `/v1/chat/completions` gives `V1ChatCompletions`. */
const operationName = (path: string): string =>
  path
    .replace(/:rest\{.*\}$/, 'name')
    .split(/[^A-Za-z0-9]+/)
    .map((word) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`)
    .join('')

const jsonOf = (name: string): object => ({ 'application/json': { schema: reference(name) } })

const reference = (name: string): object => ({ $ref: `#/components/schemas/${name}` })
