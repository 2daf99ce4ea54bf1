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
import type { PromptSpec, ResponseFormat, SamplingOptions } from '../tasks/spec.ts'
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
}

export class AiJobs implements Connection {
  readonly #parts: AiJobsParts
  readonly #listener: BackendListener
  readonly #runs = new Map<Job, AiRun>()
  readonly #latest = new Map<string, Job>()
  readonly #onReleased: () => void
  #hasWarnedTruncated = false

  constructor(parts: AiJobsParts, listener: BackendListener, onReleased: () => void) {
    this.#parts = parts
    this.#listener = listener
    this.#onReleased = onReleased
  }

  has(uid: string): boolean {
    return this.#latest.has(uid)
  }

  getSessionId(uid: string): string | undefined {
    return this.#latest.get(uid)?.sessionId
  }

  submit(jobs: readonly Job[]): void {
    for (const job of jobs) this.#submit(job)
  }

  cancel(job: Job, reason: string): void {
    this.#runs.get(job)?.cancel(reason)
  }

  async release(reason: string): Promise<void> {
    await this.cancelAll(reason)
    this.#onReleased()
  }

  async cancelAll(reason: string): Promise<void> {
    const runs = [...this.#runs.values()]
    for (const run of runs) run.cancel(reason)
    await Promise.all(runs.map(({ ended }) => ended))
  }

  #submit(job: Job): void {
    const reason = this.#parts.closedReason()
    if (reason !== null) return this.#listener.report(job, { kind: 'cancel', reason })
    const generator = this.#parts.generator()
    if (generator === null) {
      const error = new StateError('the backend is not initialized')
      return this.#listener.report(job, { kind: 'fail', error })
    }
    const { spec } = job
    if (spec.kind !== 'prompt') {
      const error = new StateError(`task ${job.uid} has no prompt`)
      return this.#listener.report(job, { kind: 'fail', error })
    }
    const onTruncated = (): void => this.#warnTruncated(job.uid)
    const run = new AiRun(
      { clock: this.#parts.clock, listener: this.#listener, onTruncated },
      job,
      spec,
    )
    this.#runs.set(job, run)
    this.#latest.set(job.uid, job)
    void run.ended.then(() => this.#forget(job))
    run.begin(generator)
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

  /** A newer attempt of the task may have been submitted; its entry in `#latest` is kept. */
  #forget(job: Job): void {
    this.#runs.delete(job)
    if (this.#latest.get(job.uid) === job) this.#latest.delete(job.uid)
  }
}

interface AiRunParts {
  readonly clock: Clock
  readonly listener: BackendListener
  readonly onTruncated: () => void
}

class AiRun {
  readonly #clock: Clock
  readonly #listener: BackendListener
  readonly #onTruncated: () => void
  readonly #job: Job
  readonly #spec: PromptSpec
  readonly #abort = new AbortController()
  readonly #ending = Promise.withResolvers<void>()
  #workerId: string | null = null
  #cancelReason: string | null = null
  #isOverdue = false
  #stopTimer: () => void = () => {}

  constructor({ clock, listener, onTruncated }: AiRunParts, job: Job, spec: PromptSpec) {
    this.#clock = clock
    this.#listener = listener
    this.#onTruncated = onTruncated
    this.#job = job
    this.#spec = spec
  }

  get ended(): Promise<void> {
    return this.#ending.promise
  }

  begin(generator: TextGenerator): void {
    void this.#run(generator)
  }

  cancel(reason: string): void {
    this.#cancelReason ??= reason
    this.#abort.abort()
  }

  #start(workerId: string, nodeId = hostname()): void {
    if (this.#workerId !== null || this.#abort.signal.aborted) return
    this.#workerId = workerId
    this.#listener.report(this.#job, { kind: 'start', workerId, nodeId })
    const seconds = this.#spec.timeoutSeconds
    if (seconds === null) return
    this.#stopTimer = this.#clock.after(seconds * 1000, () => {
      this.#isOverdue = true
      this.#abort.abort()
    })
  }

  /** Runs all prompts. The task ends when all of them have ended, even if some of them fail. */
  async #run(generator: TextGenerator): Promise<void> {
    const { prompt } = this.#spec
    const prompts = typeof prompt === 'string' ? [prompt] : prompt
    const { signal } = this.#abort
    const started = (workerId: string, nodeId?: string): void => this.#start(workerId, nodeId)
    const generate = (one: string): Promise<GenerationResult> => {
      const request = toPromptRequest(this.#job, this.#spec, one, signal)
      return generator.generate(request, { started })
    }
    const outcomes = await generateEach(prompts, generate, { clock: this.#clock, signal })
    this.#stopTimer()
    this.#ending.resolve()
    this.#listener.report(this.#job, this.#toReport(outcomes))
  }

  #toReport(outcomes: readonly PromptOutcome[]): TaskReport {
    const answers = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    if (answers.length === outcomes.length) return this.#completed(answers)
    if (this.#cancelReason !== null) return { kind: 'cancel', reason: this.#cancelReason }
    if (this.#isOverdue) {
      const text = `the task ran longer than ${this.#spec.timeoutSeconds} s`
      return { kind: 'fail', error: new TimeoutError(text) }
    }
    const isList = typeof this.#spec.prompt !== 'string'
    const error = isList ? toListError(outcomes) : toTaskCause(outcomes[0])
    const isFinal = outcomes.some((one) => one.status === 'rejected' && isRefused(one.reason))
    return { kind: 'fail', error, ...(isFinal ? { isFinal } : {}) }
  }

  #completed(answers: readonly GenerationResult[]): TaskReport {
    const texts = answers.map(({ text }) => text)
    const finishReasons = answers.map(({ finishReason }) => finishReason)
    const { prompt, sampling } = this.#spec
    const isJson = (sampling.responseFormat ?? anyText).type !== 'text'
    if (isJson && finishReasons.includes('length')) this.#onTruncated()
    const value = typeof prompt === 'string' ? texts[0] : texts
    return { kind: 'complete', value, facts: { finishReasons } }
  }
}

const anyText: ResponseFormat = { type: 'text' }

/** A retry of a refused prompt would be pointless, because it would be refused again. */
const isRefused = (error: unknown): boolean => refusalCodes.has(toInferenceCode(error))
const refusalCodes = new Set<InferenceErrorCode | undefined>([
  'content_filter',
  'context_length_exceeded',
  'unsupported',
])

/** A lost engine becomes a lost worker, so that the session retries the task. */
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
  { sampling, priority }: PromptSpec,
  prompt: string,
  signal: AbortSignal,
): PromptRequest {
  const messages: ChatMessage[] = []
  const { systemPrompt } = sampling
  if (systemPrompt !== undefined) messages.push({ role: 'system', content: systemPrompt })
  messages.push({ role: 'user', content: prompt })
  return {
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
