/** The port between the sources of requests (tasks, `generate`, HTTP) and text generation. */

import type {
  FinishReason,
  PromptReport,
  Sampling,
  TokenLogprob,
  Usage,
} from './inference-engine.ts'
import type { AnswerFields, PassedCall, PassedDelta, PassedInput } from './pass-through.ts'

/** A prompt to complete. Options that `sampling` leaves out come from the configuration. */
export interface PromptRequest {
  readonly input: PassedInput
  readonly sampling: Partial<Sampling>
  /** Higher priorities are served earlier. */
  readonly priority: number
  /** Whether to serve the prompt, which failed before, ahead of new ones. Default `false`. */
  readonly isRetry?: boolean
  /** The limit from arrival to result, time in the queue included; `null` for no limit. */
  readonly timeoutSeconds: number | null
  /** Cancels the request, in the queue or in the engine. */
  readonly signal: AbortSignal
  /**
   * Whether the request is rejected with `queue_full` when the queue is full, and with `not_ready`
   * when no engine is able to start. A session's tasks are never rejected: they wait.
   */
  readonly isBounded: boolean
  /** The task that the prompt belongs to; `null` for HTTP and `generate`. */
  readonly taskId: string | null
}

export interface GenerationResult {
  readonly text: string
  readonly finishReason: FinishReason
  readonly usage: Usage
  readonly toolCalls: readonly PassedCall[]
  readonly logprobs: readonly TokenLogprob[]
  /** The prompt. Present only if `echo` was set and the engine reports the prompt. */
  readonly prompt?: PromptReport
  /** Additional fields of the whole answer. */
  readonly fields?: AnswerFields
  /** The part of `fields` that no delta contained. */
  readonly lastFields?: AnswerFields
  /** Request fields that the server behind the engine reports as ignored. */
  readonly ignored?: readonly string[]
}

/** Receives what happens to a request before its result. */
export interface ProgressListener {
  /** Called once, when an engine begins; `nodeId` is `undefined` for an engine on this machine. */
  started?(workerId: string, nodeId: string | undefined): void
  /** More text. The engine pauses this request until a returned promise settles. */
  delta?(delta: PassedDelta): Promise<void> | undefined
}

/** The current load, for `/health` and `/metrics`. */
export interface GeneratorStatus {
  /** Requests in the queue. */
  readonly queued: number
  /** Requests in an engine. */
  readonly running: number
  /** Engines that accept requests. */
  readonly workers: number
  /** Why requests cannot be served now; `null` if they can. */
  readonly unready: string | null
}

/** Completes prompts. `generate` rejects with an `InferenceError` (see `inference-errors.ts`). */
export interface TextGenerator {
  generate(prompt: PromptRequest, listener?: ProgressListener): Promise<GenerationResult>
  tokenize(text: string): Promise<readonly number[]>
  status(): GeneratorStatus
}
