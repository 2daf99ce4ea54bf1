/** What is served where. */

import type { Endpoint, EndpointTools } from './endpoint.ts'
import { expectText, FieldReader } from './requests/field-reader.ts'
import { createGenerateEndpoint } from './generate-endpoint.ts'
import { createHealthEndpoints } from './health-endpoints.ts'
import { createTextEndpoints } from './text-endpoints.ts'
import { readIgnored, readModel, unknownModel } from './requests/text-request.ts'

/** Every address of the server. There is none that makes tasks, runs programs or reads files. */
export function createEndpoints(tools: EndpointTools): readonly Endpoint[] {
  return [
    ...createHealthEndpoints(tools),
    ...createTextEndpoints(tools),
    createGenerateEndpoint(tools),
    ...createModelEndpoints(tools),
    createTokenizeEndpoint(tools),
    createMetricsEndpoint(tools),
  ]
}

function createModelEndpoints({ rules, clock }: EndpointTools): readonly Endpoint[] {
  const created = Math.floor(clock.now())
  const describe = (id: string): object => ({ id, object: 'model', created, owned_by: 'tutti' })
  return [
    {
      method: 'GET',
      path: '/v1/models',
      answer: (exchange) =>
        exchange.sendJson(200, { object: 'list', data: rules.models.map(describe) }),
    },
    {
      method: 'GET',
      path: '/v1/models/:rest{.+}',
      answer(exchange, _, rest) {
        const id = decoded(rest)
        if (!rules.models.includes(id)) throw unknownModel(id, rules.models)
        exchange.sendJson(200, describe(id))
      },
    },
  ]
}

function createTokenizeEndpoint({ desk, limits, rules }: EndpointTools): Endpoint {
  return {
    method: 'POST',
    path: '/tokenize',
    bodyBytes: limits.bodyBytes,
    async answer(exchange, body) {
      const fields = new FieldReader(body, '')
      readModel(fields, rules)
      const content = fields.string('content')
      const text = content ?? expectText('prompt', fields.required('prompt'))
      readIgnored(fields, rules)
      const tokens = await desk.tokenize(text)
      exchange.sendJson(200, { tokens, count: tokens.length })
    },
  }
}

function createMetricsEndpoint({ metrics }: EndpointTools): Endpoint {
  return {
    method: 'GET',
    path: '/metrics',
    async answer(exchange) {
      const type = 'text/plain; version=0.0.4; charset=utf-8'
      exchange.sendText(200, await metrics(), ['content-type', type])
    },
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
