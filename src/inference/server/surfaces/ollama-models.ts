/** Routes of Ollama's API that describe the served models. They load nothing. */

import type { DocumentedRoute } from '../openapi.ts'
import { expectModel, type KnownFacts, type ServedModel } from '../served-model.ts'
import { z } from '../../schema/schema.ts'
import { toServedName } from './ollama-request.ts'
import type { CompanionContext } from './surface.ts'
import { expectValid } from './translation.ts'

/** The version of Ollama whose API this is. Clients compare it with the version that they need. */
const apiVersion = '0.13.0'

const showRequest = z.looseObject({ model: z.string().nullish(), name: z.string().nullish() })

export function createOllamaModelRoutes(context: CompanionContext): readonly DocumentedRoute[] {
  const { listModels, clock } = context
  const modifiedAt = new Date(clock.now() * 1000).toISOString()
  const failure = 'OllamaError'
  const describe = (name: string, { memoryBytes }: ServedModel): object => {
    return { name, model: name, size: memoryBytes, digest: '', details }
  }
  return [
    {
      method: 'GET',
      path: '/api/tags',
      document: { summary: 'The served models.', failure },
      answer(exchange) {
        const models = listModels().flatMap((model) =>
          model.names.map((name) => ({ ...describe(name, model), modified_at: modifiedAt })),
        )
        exchange.sendJson(200, { models })
      },
    },
    {
      method: 'GET',
      path: '/api/ps',
      document: { summary: 'The loaded models.', failure },
      answer(exchange) {
        const loaded = listModels().filter(({ isLoaded }) => isLoaded)
        const models = loaded.flatMap((model) => {
          const { contextLength, leftSeconds } = model
          const expires_at = toExpiry(clock.now() + leftSeconds)
          const facts = { size_vram: 0, expires_at, context_length: contextLength }
          return model.names.map((name) => ({ ...describe(name, model), ...facts }))
        })
        exchange.sendJson(200, { models })
      },
    },
    createShowRoute(context, modifiedAt),
    {
      method: 'GET',
      path: '/api/version',
      document: { summary: 'The version of Ollama whose API this is.', failure },
      answer: (exchange) => exchange.sendJson(200, { version: apiVersion }),
    },
  ]
}

function createShowRoute(
  { listModels, limits }: CompanionContext,
  modifiedAt: string,
): DocumentedRoute {
  return {
    method: 'POST',
    path: '/api/show',
    document: { summary: 'One served model.', failure: 'OllamaError' },
    bodyBytes: limits.bodyBytes,
    isAnyTypeAccepted: true,
    needsModel: false,
    answer(exchange, body) {
      const { model, name } = expectValid(showRequest, body)
      const models = listModels()
      const served = toServedName(
        model ?? name ?? '',
        models.flatMap(({ names }) => names),
      )
      const { contextLength, facts } = expectModel(served, models)
      exchange.sendJson(200, {
        modelfile: '',
        parameters: '',
        template: '',
        details,
        model_info: {
          'general.architecture': 'tutti',
          'general.basename': served,
          'tutti.context_length': contextLength,
        },
        capabilities: listCapabilities(facts ?? {}),
        modified_at: modifiedAt,
      })
    },
  }
}

/**
 * Lists all capabilities if the template is unknown, for example because the model is on another
 * server.
 */
function listCapabilities(facts: KnownFacts): readonly string[] {
  const { purpose, hasChatTemplate = true, chatTemplate } = facts
  if (purpose === 'embedding') return ['embedding']
  const source = hasChatTemplate ? (chatTemplate ?? 'tools, thinking') : ''
  return [
    'completion',
    ...(/\btools\b/.test(source) ? ['tools'] : []),
    ...(/think|reasoning_effort/i.test(source) ? ['thinking'] : []),
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

/** The expiry time that is reported for a model that stays loaded. */
const endOfTime = '9999-12-31T23:59:59Z'

const toExpiry = (seconds: number): string =>
  seconds === Infinity ? endOfTime : new Date(seconds * 1000).toISOString()
