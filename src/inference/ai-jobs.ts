/** Runs AI tasks: one request to the text generator for each prompt of a task. */

import { hostname } from 'node:os'
import type { BackendListener, Connection, Job, Refusal, TaskReport } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import {
  InferenceError,
  messageOf,
  StateError,
  TimeoutError,
  WorkerLostError,
} from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { definedFields } from '../foundation/options.ts'
import type { PromptSpec, SamplingOptions } from '../tasks/spec.ts'
import { generateEach, type PromptOutcome, toResult } from './generate.ts'
import type { ChatMessage, OutputFormat, Sampling } from './generation/inference-engine.ts'
import { toInferenceCode, type InferenceErrorCode } from './generation/inference-errors.ts'
import type { GenerationResult, PromptRequest, TextGenerator } from './generation/text-generator.ts'

export interface AiJobsParts {
  /** Returns the text generator; `null` before the backend is initialized. */
  readonly generator: () => TextGenerator | null
  readonly clock: Clock
  readonly log: Log
  readonly closedReason: () => string | null
  readonly listener: BackendListener
  readonly onReleased: () => void
}

export class AiJobs implements Connection {
  readonly #parts: AiJobsParts
  readonly #runs = new Map<Job, AiRun>()
  readonly #latestJobs = new Map<string, Job>()
  #hasWarnedTruncated = false

  constructor(parts: AiJobsParts) {
    this.#parts = parts
  }

  has(uid: string): boolean {
    return this.#latestJobs.has(uid)
  }

  getSessionId(uid: string): string | undefined {
    return this.#latestJobs.get(uid)?.sessionId
  }

  submit(jobs: readonly Job[]): void {
    for (const job of jobs) this.#submit(job)
  }

  cancel(job: Job, reason: string): void {
    this.#runs.get(job)?.cancel(reason)
  }

  async release(reason: string): Promise<void> {
    await this.cancelAll(reason)
    this.#parts.onReleased()
  }

  async cancelAll(reason: string): Promise<void> {
    const runs = [...this.#runs.values()]
    for (const run of runs) run.cancel(reason)
    await Promise.all(runs.map(({ ended }) => ended))
  }

  #submit(job: Job): void {
    const { listener, clock } = this.#parts
    const reason = this.#parts.closedReason()
    if (reason !== null) return listener.report(job, { kind: 'cancel', reason })
    const generator = this.#parts.generator()
    if (generator === null) {
      const error = new StateError('the backend is not initialized')
      return listener.report(job, { kind: 'fail', error })
    }
    const { spec } = job
    if (spec.kind !== 'prompt') {
      const error = new StateError(`task ${job.uid} has no prompt`)
      return listener.report(job, { kind: 'fail', error })
    }
    const run = new AiRun({
      job,
      spec,
      clock,
      listener,
      onTruncated: () => this.#warnTruncated(job.uid),
    })
    this.#runs.set(job, run)
    this.#latestJobs.set(job.uid, job)
    void run.begin(generator)
    void run.ended.then(() => this.#forget(job))
  }

  /** Warns once per session, because the same limit usually cuts many answers. */
  #warnTruncated(uid: string): void {
    if (this.#hasWarnedTruncated) return
    this.#hasWarnedTruncated = true
    const text =
      `the answer of task ${uid} was cut at its limit of tokens, so its JSON is not complete: ` +
      'raise `maxTokens`; `finishReason` of such a task is `length` (one warning per session)'
    this.#parts.log.warn('AnswerCut', text)
  }

  /**
   * Removes a job. Keeps the entry of `#latestJobs` if it belongs to a newer attempt of the task.
   */
  #forget(job: Job): void {
    this.#runs.delete(job)
    if (this.#latestJobs.get(job.uid) === job) this.#latestJobs.delete(job.uid)
  }
}

interface AiRunParts {
  readonly job: Job
  readonly spec: PromptSpec
  readonly clock: Clock
  readonly listener: BackendListener
  readonly onTruncated: () => void
}

class AiRun {
  readonly #parts: AiRunParts
  readonly #abort = new AbortController()
  readonly #end = Promise.withResolvers<void>()
  #workerId: string | null = null
  #cancelReason: string | null = null
  #hasTimedOut = false
  #stopTimer: () => void = () => {}

  constructor(parts: AiRunParts) {
    this.#parts = parts
  }

  get ended(): Promise<void> {
    return this.#end.promise
  }

  cancel(reason: string): void {
    this.#cancelReason ??= reason
    this.#abort.abort()
  }

  #start(workerId: string, nodeId = hostname()): void {
    if (this.#workerId !== null || this.#abort.signal.aborted) return
    this.#workerId = workerId
    const { job, spec, clock, listener } = this.#parts
    listener.report(job, { kind: 'start', workerId, nodeId })
    if (spec.timeoutSeconds === null) return
    this.#stopTimer = clock.after(spec.timeoutSeconds * 1000, () => {
      this.#hasTimedOut = true
      this.#abort.abort()
    })
  }

  /** Runs all prompts. The task ends when all of them have ended, even if some of them fail. */
  async begin(generator: TextGenerator): Promise<void> {
    const { job, spec, clock, listener } = this.#parts
    const prompts = typeof spec.prompt === 'string' ? [spec.prompt] : spec.prompt
    const { signal } = this.#abort
    const started = (workerId: string, nodeId?: string): void => this.#start(workerId, nodeId)
    const generate = (one: string): Promise<GenerationResult> => {
      const request = toPromptRequest(job, spec, one, signal)
      return generator.generate(request, { started })
    }
    const outcomes = await generateEach(prompts, generate, { clock, signal })
    this.#stopTimer()
    this.#end.resolve()
    listener.report(job, this.#toReport(outcomes))
  }

  #toReport(outcomes: readonly PromptOutcome[]): TaskReport {
    const { prompt, timeoutSeconds } = this.#parts.spec
    const answers = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    if (answers.length === outcomes.length) return this.#completed(answers)
    if (this.#cancelReason !== null) return { kind: 'cancel', reason: this.#cancelReason }
    if (this.#hasTimedOut) {
      const text = `the task ran longer than ${timeoutSeconds} s`
      return { kind: 'fail', error: new TimeoutError(text) }
    }
    const error = typeof prompt === 'string' ? toTaskCause(outcomes[0]) : toListError(outcomes)
    const isFinal = outcomes.some((one) => one.status === 'rejected' && isRefused(one.reason))
    return { kind: 'fail', error, ...(isFinal ? { isFinal } : {}) }
  }

  #completed(answers: readonly GenerationResult[]): TaskReport {
    const texts = answers.map(({ text }) => text)
    const finishReasons = answers.map(({ finishReason }) => finishReason)
    const { prompt, sampling } = this.#parts.spec
    const isJson = (sampling.responseFormat?.type ?? 'text') !== 'text'
    if (isJson && finishReasons.includes('length')) this.#parts.onTruncated()
    const value = typeof prompt === 'string' ? texts[0] : texts
    return { kind: 'complete', value, facts: { finishReasons } }
  }
}

/** A retry of a refused prompt would be pointless, because it would be refused again. */
const isRefused = (error: unknown): boolean => refusalCodes.has(toInferenceCode(error))
const refusalCodes = new Set<InferenceErrorCode | undefined>([
  'content_filter',
  'context_length_exceeded',
  'unsupported',
])

/** The error of a lost engine becomes a `WorkerLostError`, so that the session retries the task. */
function toTaskCause(outcome: PromptOutcome | undefined): unknown {
  const error: unknown = outcome?.status === 'rejected' ? outcome.reason : undefined
  if (toInferenceCode(error) !== 'engine_lost') return error
  return new WorkerLostError(messageOf(error), { cause: error })
}

function toListError(outcomes: readonly PromptOutcome[]): InferenceError {
  const results = outcomes.map(toResult)
  const failed = results.filter(({ error }) => error !== undefined)
  const at = results.findIndex(({ error }) => error !== undefined)
  const { code = 'engine_error', message = '' } = results[at]?.error ?? {}
  const text = `${failed.length} of ${results.length} prompts failed; prompt[${at}]: ${message}`
  const first = outcomes[at]
  const cause: unknown = first?.status === 'rejected' ? first.reason : undefined
  return new InferenceError(text, { code, cause, results })
}

function toPromptRequest(
  { uid, isRetry = false }: Job,
  { sampling, priority, model }: PromptSpec,
  prompt: string,
  signal: AbortSignal,
): PromptRequest {
  const messages: ChatMessage[] = []
  const { systemPrompt } = sampling
  if (systemPrompt !== undefined) messages.push({ role: 'system', content: systemPrompt })
  messages.push({ role: 'user', content: prompt })
  return {
    model,
    input: { kind: 'chat', messages },
    sampling: toSampling(sampling),
    priority,
    isRetry,
    // `AiRun` itself enforces the time-out of the task, from the start of its execution.
    timeoutSeconds: null,
    signal,
    isBounded: false,
    taskId: uid,
  }
}

function toSampling(options: SamplingOptions): Partial<Sampling> {
  const { maxTokens, temperature, topP, topK, stop, seed, responseFormat } = options
  const format = responseFormat === undefined ? undefined : toFormat(responseFormat)
  return definedFields({
    maxTokens,
    temperature,
    topP,
    topK,
    stop: typeof stop === 'string' ? [stop] : stop,
    seed,
    format: format === undefined || 'message' in format ? undefined : format,
  })
}

export function refuseFormat({ sampling }: PromptSpec): Refusal | null {
  const { responseFormat } = sampling
  const format = responseFormat === undefined ? null : toFormat(responseFormat)
  return format !== null && 'message' in format ? format : null
}

function toFormat(given: object): OutputFormat | Refusal {
  const { type, json_schema: wrapper } = given as { type?: unknown; json_schema?: unknown }
  if (type === 'text') return { kind: 'text' }
  if (type === 'json_object') return { kind: 'json_object' }
  if (type !== 'json_schema') {
    const message = 'expected "text", "json_object" or "json_schema"'
    return { field: 'responseFormat.type', message }
  }
  const schema = (wrapper as { schema?: unknown } | undefined)?.schema
  if (typeof schema === 'object' && schema !== null) {
    return { kind: 'json_schema', schema, field: 'responseFormat' }
  }
  return { field: 'responseFormat.json_schema.schema', message: 'expected a JSON schema' }
}
