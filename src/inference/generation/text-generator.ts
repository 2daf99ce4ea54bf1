/** The port between the sources of requests (tasks, `generate`, HTTP) and text generation. */

import type {
  FinishReason,
  PromptReport,
  PromptTokens,
  Sampling,
  TokenLogprob,
  Usage,
} from './inference-engine.ts'
import type {
  AnswerFields,
  WireToolCall,
  PassThroughDelta,
  PassThroughInput,
} from './pass-through.ts'

/** A prompt to complete. Options that `sampling` leaves out come from the configuration. */
export interface PromptRequest {
  /** A name of the model, if there are several. Default: the first model. */
  readonly model?: string | null
  readonly input: PassThroughInput
  readonly sampling: Partial<Sampling>
  readonly priority: number
  /** Whether this prompt failed before and must be served ahead of new prompts. Default `false`. */
  readonly isRetry?: boolean
  /** The time limit, including the time in the queue; `null` for no limit. */
  readonly timeoutSeconds: number | null
  readonly signal: AbortSignal
  /**
   * Whether the prompt is rejected if the queue is full or no engine can start. A session's tasks
   * are never rejected.
   */
  readonly isBounded: boolean
  /** The client that sent the prompt. Clients take turns. Default: this process. */
  readonly client?: string
  /** Further attributes for the span of the request, such as its route. Default none. */
  readonly spanAttributes?: Readonly<Record<string, string>>
  /** The task that the prompt belongs to; `null` for HTTP and `generate`. */
  readonly taskId: string | null
  /** Called once when the prompt has ended, even if it has failed or was canceled. */
  readonly onUsed?: (use: PromptUse) => void
}

/** What a prompt has used and produced. `text` is empty if it has failed or was canceled. */
export interface PromptUse {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly text: string
}

export interface GenerationResult {
  readonly text: string
  readonly finishReason: FinishReason
  readonly usage: Usage
  readonly toolCalls: readonly WireToolCall[]
  readonly logprobs: readonly TokenLogprob[]
  readonly prompt?: PromptReport
  readonly embedding?: Float32Array
  readonly fields?: AnswerFields
  /** The part of `fields` that was not in any delta. */
  readonly lastFields?: AnswerFields
  /** Request fields that the server behind the engine reports as ignored. */
  readonly ignored?: readonly string[]
  /** The time from the arrival of the request to its first token. Absent without a token. */
  readonly firstTokenMs?: number
}

export interface ProgressListener {
  /** Called once. `nodeId` is `undefined` if the engine runs on this machine. */
  started?(workerId: string, nodeId: string | undefined): void
  /** The engine pauses this request until a returned promise settles. */
  delta?(delta: PassThroughDelta): Promise<void> | undefined
}

export interface GeneratorStatus {
  readonly queued: number
  readonly running: number
  readonly workers: number
  readonly unreadyReason: string | null
}

/** Completes prompts. `generate` rejects with an `InferenceError` (see `inference-errors.ts`). */
export interface TextGenerator {
  generate(prompt: PromptRequest, listener?: ProgressListener): Promise<GenerationResult>
  tokenize(text: string): Promise<readonly number[]>
  /** Rejects with the code `unsupported` if the engine cannot do this. So does `readPrompt`. */
  detokenize(tokens: readonly number[]): Promise<string>
  /** Returns the prompt as the model reads it, after guardrails and with the system prompt. */
  readPrompt(input: PassThroughInput): Promise<PromptTokens>
  status(): GeneratorStatus
}
