/** `POST /generate`: many prompts, an answer or an error for each. */

import type { Answer } from '../generation/text-generator.ts'
import { ignoredHeaders, toQuestions } from './answering.ts'
import { readGenerateRequest } from './requests/completion-request.ts'
import { type Endpoint, type EndpointTools, machineName } from './endpoint.ts'
import type { Exchange } from './exchange.ts'
import type { HttpError } from './http-error.ts'

export const generatePath = '/generate'

export function createGenerateEndpoint({ desk, clock, limits, rules }: EndpointTools): Endpoint {
  return {
    method: 'POST',
    path: generatePath,
    bodyBytes: limits.bodyBytes,
    async answer(exchange, body) {
      const start = clock.monotonicMs()
      const request = readGenerateRequest(body, rules)
      const questions = toQuestions(request, exchange.signal)
      const outcomes = await Promise.allSettled(
        questions.map(async (question) => desk.ask(question)),
      )
      if (exchange.isGone) return
      const results = outcomes.map((outcome) => resultOf(exchange, outcome))
      const failure = commonFailure(results)
      if (failure !== undefined) throw failure
      const seconds = (clock.monotonicMs() - start) / 1000
      exchange.sendJson(
        200,
        {
          status: 'success',
          hostname: machineName,
          results: results.map(toField),
          num_prompts: results.length,
          total_time: seconds,
          avg_time_per_prompt: results.length === 0 ? 0 : seconds / results.length,
        },
        ignoredHeaders(request),
      )
    },
  }
}

/** An error in the shape of this endpoint. */
export function refuseGenerate(exchange: Exchange, error: HttpError): void {
  const body = { status: 'error', message: error.message, hostname: machineName }
  exchange.sendJson(error.status, body, error.headers)
}

function resultOf(exchange: Exchange, outcome: PromiseSettledResult<Answer>): string | HttpError {
  return outcome.status === 'fulfilled' ? outcome.value.text : exchange.explain(outcome.reason)
}

/** When nothing was answered, and not for what the prompts say, the request as a whole failed. */
function commonFailure(results: readonly (string | HttpError)[]): HttpError | undefined {
  const [first] = results
  if (first === undefined || typeof first === 'string' || first.status < 429) return undefined
  const isCommon = results.every((one) => typeof one !== 'string' && one.code === first.code)
  return isCommon ? first : undefined
}

function toField(result: string | HttpError): unknown {
  if (typeof result === 'string') return result
  return { error: { code: result.code, message: result.message } }
}
