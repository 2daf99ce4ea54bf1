/** The port between those who ask for text (tasks, `generate`, HTTP) and the batching behind it. */

import type {
  FinishReason,
  GenerationDelta,
  GenerationInput,
  Sampling,
  TokenLogprob,
  ToolCall,
  Usage,
} from './inference-engine.ts'

/** One answer asked for. What is left out of `sampling` is the configuration's choice. */
export interface Question {
  readonly input: GenerationInput
  readonly sampling: Partial<Sampling>
  /** Higher is served earlier. */
  readonly priority: number
  /** Seconds until it is given up, waiting included; `null` for no limit. */
  readonly timeoutSeconds: number | null
  /** Ends it: it leaves the queue or the engine. */
  readonly signal: AbortSignal
  /** Refused with `queue_full` when too many wait; what a session submits never is. */
  readonly isBounded: boolean
  /** The task that asks; `null` for HTTP and `generate`. */
  readonly taskId: string | null
}

export interface Answer {
  readonly text: string
  readonly finishReason: FinishReason
  readonly usage: Usage
  readonly toolCalls: readonly ToolCall[]
  readonly logprobs: readonly TokenLogprob[]
}

/** What happens on the way to an answer; every call is optional for the one who asks. */
export interface AnswerListener {
  /** An engine has begun with it. Called once at most. */
  started?(workerId: string): void
  /** More text. A promise holds the generation back until it settles. */
  delta?(delta: GenerationDelta): Promise<void> | undefined
}

/** How things stand, for `/health` and `/metrics`. */
export interface DeskStatus {
  /** Requests that wait. */
  readonly queued: number
  /** Requests that an engine has. */
  readonly running: number
  readonly workers: number
  /** Why nothing can be answered now; `null` when it can. */
  readonly unready: string | null
}

/**
 * Answers questions: guardrails, batching, engines, spans and metrics lie behind it. `ask` rejects
 * with an `InferenceError` (see inference-errors.ts).
 */
export interface Desk {
  ask(question: Question, listener?: AnswerListener): Promise<Answer>
  tokenize(text: string): Promise<readonly number[]>
  status(): DeskStatus
}
