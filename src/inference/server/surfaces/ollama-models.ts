/** Routes of Ollama's API that describe the served models. They load nothing. */

import type { DocumentedRoute } from '../openapi.ts'
import { unknownModelError } from '../requests/invalid-request.ts'
import { z } from '../../schema/schema.ts'
import { toServedName } from './ollama-request.ts'
import type { CompanionContext } from './surface.ts'
import { expectValid } from './translation.ts'

/** The version of Ollama whose API this is. Clients compare it with the version that they need. */
const apiVersion = '0.13.0'

const showRequest = z.looseObject({ model: z.string().nullish(), name: z.string().nullish() })

export function createOllamaModelRoutes(context: CompanionContext): readonly DocumentedRoute[] {
  const { rules } = context.requests
  const modifiedAt = new Date(context.clock.now() * 1000).toISOString()
  const failure = 'OllamaError'
  const describe = (name: string): object => ({ name, model: name, size: 0, digest: '', details })
  return [
    {
      method: 'GET',
      path: '/api/tags',
      document: { summary: 'The served models.', failure },
      answer(exchange) {
        const models = rules.models.map((name) => ({ ...describe(name), modified_at: modifiedAt }))
        exchange.sendJson(200, { models })
      },
    },
    {
      method: 'GET',
      path: '/api/ps',
      document: { summary: 'The loaded models.', failure },
      answer(exchange) {
        const loaded = { size_vram: 0, expires_at: endOfTime, context_length: rules.contextLength }
        const models = rules.models.map((name) => ({ ...describe(name), ...loaded }))
        exchange.sendJson(200, { models })
      },
    },
    {
      method: 'POST',
      path: '/api/show',
      document: { summary: 'One served model.', failure },
      bodyBytes: context.limits.bodyBytes,
      isAnyTypeAccepted: true,
      answer(exchange, body) {
        const { model, name } = expectValid(showRequest, body)
        const served = toServedName(model ?? name ?? '', rules.models)
        const isServed = rules.models.includes(served) || rules.hiddenModels.includes(served)
        if (!isServed) throw unknownModelError(served, rules.models)
        exchange.sendJson(200, {
          modelfile: '',
          parameters: '',
          template: '',
          details,
          model_info: {
            'general.architecture': 'tutti',
            'general.basename': served,
            'tutti.context_length': rules.contextLength,
          },
          capabilities: ['completion', 'tools', 'thinking'],
          modified_at: modifiedAt,
        })
      },
    },
    {
      method: 'GET',
      path: '/api/version',
      document: { summary: 'The version of Ollama whose API this is.', failure },
      answer: (exchange) => exchange.sendJson(200, { version: apiVersion }),
    },
  ]
}

/** Nothing is known about these details. Clients expect the fields nevertheless. */
const details = {
  parent_model: '',
  format: '',
  family: '',
  families: [],
  parameter_size: '',
  quantization_level: '',
}

/** The time at which a loaded model is unloaded: never. */
const endOfTime = '9999-12-31T23:59:59Z'
