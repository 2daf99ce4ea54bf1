/** Spans and metrics of requests, by the GenAI semantic conventions of OpenTelemetry. */

import type { HistogramInstrument, Labels, Measurement } from '../../events/measurement.ts'
import type { WorkSpan } from '../../events/sink.ts'
import { InferenceError, messageOf } from '../../foundation/errors.ts'
import { type JsonValue, toJsonObject } from '../../foundation/json-value.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import type { BatchReport } from './batch-run.ts'
import type { GenerationInput, Usage } from './inference-engine.ts'
import { toInferenceCode } from './inference-errors.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import type { PassThroughInput, PassThroughRequest } from './pass-through.ts'
import type { GenerationResult } from './text-generator.ts'

const provider = 'tutti'

const requestDuration: HistogramInstrument = {
  name: 'gen_ai.server.request.duration',
  unit: 's',
  description: 'from the arrival of a request to its end',
  boundaries: [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
  ],
}

const timeToFirstToken: HistogramInstrument = {
  name: 'gen_ai.server.time_to_first_token',
  unit: 's',
  description: 'from the arrival of a request to its first token',
  boundaries: [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
  ],
}

const timePerOutputToken: HistogramInstrument = {
  name: 'gen_ai.server.time_per_output_token',
  unit: 's',
  description: 'time per token after the first',
  boundaries: [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5],
}

const tokenUsage: HistogramInstrument = {
  name: 'gen_ai.client.token.usage',
  unit: '{token}',
  description: 'tokens of prompts and generated text',
  boundaries: Array.from({ length: 14 }, (_, power) => 4 ** power),
}

/**
 * A request that has ended. `arrivalTime` is in wall-clock seconds, the other times are monotonic.
 */
export interface FinishedGeneration {
  readonly request: PassThroughRequest
  readonly model: string
  readonly taskId: string | null
  readonly arrivedMs: number
  readonly arrivalTime: number
  readonly firstTokenMs: number | null
  readonly endedMs: number
  readonly outcome: { readonly result: GenerationResult } | { readonly error: unknown }
  /** Ids of the guardrail rules that matched; the matched text is never included. */
  readonly rules: readonly string[]
  readonly isContentCaptured: boolean
  readonly spanAttributes: Readonly<Record<string, string>>
}

export function toSpan(generation: FinishedGeneration): WorkSpan {
  const { request, model, taskId, arrivedMs, arrivalTime, endedMs, outcome } = generation
  const isFailed = 'error' in outcome && !isCanceled(outcome.error)
  return {
    spanId: request.id,
    name: `${toOperation(request.input)} ${model}`,
    taskId,
    startTime: arrivalTime,
    endTime: arrivalTime + (endedMs - arrivedMs) / 1000,
    attributes: toJsonObject({
      ...requestAttributes(generation),
      ...('result' in outcome
        ? resultAttributes(generation, outcome.result)
        : isFailed
          ? { 'error.type': toErrorType(outcome.error) }
          : { status: 'canceled' }),
    }),
    error: isFailed ? maskSecrets(messageOf(outcome.error)) : null,
    links: [],
  }
}

interface OperationLabels {
  readonly base: Labels
  readonly inputTokens: Labels
  readonly outputTokens: Labels
}

export class GenerationMeter {
  readonly #labels: Readonly<Record<Operation, OperationLabels>>

  constructor(model: string) {
    this.#labels = {
      chat: operationLabels(model, 'chat'),
      text_completion: operationLabels(model, 'text_completion'),
      embeddings: operationLabels(model, 'embeddings'),
    }
  }

  measure(generation: FinishedGeneration): Measurement[] {
    const { request, arrivedMs, firstTokenMs, endedMs, outcome } = generation
    const { base, inputTokens, outputTokens } = this.#labels[toOperation(request.input)]
    const duration = (endedMs - arrivedMs) / 1000
    if ('error' in outcome) {
      const failed = { ...base, 'error.type': toErrorType(outcome.error) }
      return [{ instrument: requestDuration, value: duration, labels: failed }]
    }
    const { promptTokens, completionTokens } = outcome.result.usage
    const measurements: Measurement[] = [
      { instrument: requestDuration, value: duration, labels: base },
      { instrument: tokenUsage, value: promptTokens, labels: inputTokens },
      { instrument: tokenUsage, value: completionTokens, labels: outputTokens },
    ]
    if (firstTokenMs === null) return measurements
    const first = (firstTokenMs - arrivedMs) / 1000
    measurements.push({ instrument: timeToFirstToken, value: first, labels: base })
    if (completionTokens < 2) return measurements
    const perToken = (endedMs - firstTokenMs) / 1000 / (completionTokens - 1)
    measurements.push({ instrument: timePerOutputToken, value: perToken, labels: base })
    return measurements
  }
}

function operationLabels(model: string, operation: string): OperationLabels {
  const base = {
    'gen_ai.operation.name': operation,
    'gen_ai.provider.name': provider,
    'gen_ai.request.model': model,
  }
  return {
    base,
    inputTokens: { ...base, 'gen_ai.token.type': 'input' },
    outputTokens: { ...base, 'gen_ai.token.type': 'output' },
  }
}

export function toBatchSpan(spanId: string, model: string, batch: BatchReport): WorkSpan {
  const { workerId, requestIds, startedAt, durationMs, waitMs, error } = batch
  return {
    spanId,
    name: `batch ${model}`,
    taskId: null,
    startTime: startedAt,
    endTime: startedAt + durationMs / 1000,
    attributes: toJsonObject({
      'gen_ai.provider.name': provider,
      'gen_ai.request.model': model,
      worker_id: workerId,
      batch_size: requestIds.length,
      wait_seconds: waitMs / 1000,
    }),
    error: error === null ? null : maskSecrets(error),
    links: requestIds,
  }
}

type Operation = 'chat' | 'text_completion' | 'embeddings'

function toOperation(input: GenerationInput): Operation {
  if (input.kind === 'chat') return 'chat'
  return input.wantsEmbedding === true ? 'embeddings' : 'text_completion'
}

type Attributes = Record<string, JsonValue>

function requestAttributes(generation: FinishedGeneration): Attributes {
  const { request, model, rules, isContentCaptured, spanAttributes } = generation
  const { sampling, input } = request
  const attributes: Attributes = {
    ...spanAttributes,
    'gen_ai.operation.name': toOperation(input),
    'gen_ai.provider.name': provider,
    'gen_ai.request.model': model,
    'gen_ai.request.max_tokens': sampling.maxTokens,
    'gen_ai.request.temperature': sampling.temperature,
    'gen_ai.request.top_p': sampling.topP,
    'gen_ai.request.top_k': sampling.topK,
    'gen_ai.output.type': sampling.format.kind === 'text' ? 'text' : 'json',
  }
  if (sampling.seed !== null) attributes['gen_ai.request.seed'] = sampling.seed
  if (sampling.stop.length > 0) attributes['gen_ai.request.stop_sequences'] = [...sampling.stop]
  if (rules.length > 0) attributes['tutti.guardrails.rules'] = [...rules]
  if (!isContentCaptured) return attributes
  attributes['gen_ai.input.messages'] = maskSecrets(JSON.stringify(toInputMessages(input)))
  return attributes
}

const toInputMessages = (input: PassThroughInput): unknown =>
  input.kind === 'chat'
    ? (input.body?.['messages'] ?? input.messages)
    : [{ role: 'user', content: input.text }]

function resultAttributes(
  { model, isContentCaptured, arrivedMs, firstTokenMs }: FinishedGeneration,
  result: GenerationResult,
): Attributes {
  const attributes: Attributes = {
    'gen_ai.response.model': model,
    'gen_ai.response.finish_reasons': [result.finishReason],
    'gen_ai.usage.input_tokens': result.usage.promptTokens,
    'gen_ai.usage.output_tokens': result.usage.completionTokens,
  }
  if (firstTokenMs !== null) {
    attributes['gen_ai.response.time_to_first_chunk'] = (firstTokenMs - arrivedMs) / 1000
  }
  const cached = readCachedTokens(result.usage)
  if (cached !== null) attributes['gen_ai.usage.cache_read.input_tokens'] = cached
  if (isContentCaptured) {
    const content = [{ role: 'assistant', content: result.text }]
    attributes['gen_ai.output.messages'] = maskSecrets(JSON.stringify(content))
  }
  return attributes
}

/** How many tokens of the prompt came from a cache; `null` if the engine does not report it. */
export function readCachedTokens({ details = {} }: Usage): number | null {
  const prompt = details['prompt_tokens_details']
  const cached = isPlainObject(prompt) ? prompt['cached_tokens'] : undefined
  return typeof cached === 'number' && cached >= 0 ? cached : null
}

/** Whether the request was canceled. The span of a canceled request is not an error. */
const isCanceled = (error: unknown): boolean => toInferenceCode(error) === 'canceled'

function toErrorType(error: unknown): string {
  if (InferenceError.isInstance(error)) return error.code
  return error instanceof Error ? error.name : 'unknown'
}
