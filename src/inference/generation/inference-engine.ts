/** The port of everything that turns a conversation or a text into more text. */

/** Who said what. Parts of a message (text parts) are joined before they come here. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** What an assistant asked for. */
  readonly toolCalls?: readonly ToolCall[]
  /** The call that a `tool` message answers. */
  readonly toolCallId?: string
  readonly name?: string
}

/** A function of the client's that the model may ask for; nobody here ever calls it. */
export interface ToolDefinition {
  readonly name: string
  readonly description?: string
  /** A JSON schema of the arguments. */
  readonly parameters?: object
}

/** A model's wish that the client call a tool and send the outcome as a `tool` message. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  /** JSON text. */
  readonly arguments: string
}

/** Whether the model may call tools, must call one, or must call the one that is named. */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

/** What is to be continued: a conversation that the model's template spells, or raw text. */
export type GenerationInput =
  | {
      readonly kind: 'chat'
      readonly messages: readonly ChatMessage[]
      readonly tools?: readonly ToolDefinition[]
      readonly toolChoice?: ToolChoice
    }
  | { readonly kind: 'text'; readonly text: string }

/** What the answer's text has to be: anything, a JSON object, or JSON that fits a schema. */
export type OutputFormat =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: object }

/** How tokens are chosen, complete: defaults were filled in before. */
export interface Sampling {
  readonly maxTokens: number
  /** 0 takes the most likely token always. */
  readonly temperature: number
  readonly topP: number
  /** 0 considers all tokens. */
  readonly topK: number
  readonly minP: number
  /** 1 changes nothing. */
  readonly repetitionPenalty: number
  readonly seed: number | null
  readonly stop: readonly string[]
  readonly ignoreEos: boolean
  /** How many likely tokens are told beside each chosen one; `null` for none of it. */
  readonly logprobs: number | null
  readonly format: OutputFormat
}

/** One text to be generated. */
export interface GenerationRequest {
  /** Unique among the requests that an engine has. Answers are matched by it, never by order. */
  readonly id: string
  readonly input: GenerationInput
  readonly sampling: Sampling
  /** Ends it: the engine lets go within one token, and reports `canceled`. */
  readonly signal: AbortSignal
}

/** A token and how likely it was at its place, as the natural logarithm. */
export interface TokenChance {
  readonly token: string
  readonly logprob: number
  /** Where `token` does not spell them: a part of a character comes out as U+FFFD. */
  readonly bytes?: readonly number[]
}

/** The token that was chosen, with the likeliest ones of its place. */
export interface TokenLogprob extends TokenChance {
  readonly top: readonly TokenChance[]
}

/** A piece of an answer. */
export interface GenerationDelta {
  readonly text: string
  readonly logprobs?: readonly TokenLogprob[]
  readonly toolCalls?: readonly ToolCall[]
  /** With the first piece, where it is known so early: it counts when the answer is cut off. */
  readonly promptTokens?: number
}

/** Why an answer ended: by itself, at its length, with calls of tools, or at a filter. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/** What a request cost in tokens; an estimate where the engine's server does not tell. */
export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
}

/** How a request ended; only with `done` are its deltas a whole answer. */
export type GenerationEnd =
  | { readonly kind: 'done'; readonly finishReason: FinishReason; readonly usage: Usage }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'canceled' }

/** The only way back from an engine. Neither call throws. */
export interface GenerationListener {
  /**
   * More text; all deltas together are the answer. A promise asks the engine to hold this request
   * back until it settles: its reader is slow.
   */
  delta(id: string, delta: GenerationDelta): Promise<void> | undefined
  /** Once for every request, after its last delta. */
  end(id: string, end: GenerationEnd): void
}

/** What is known of the model once an engine has started. */
export interface ModelFacts {
  readonly name: string
  /** Tokens of prompt and answer together. */
  readonly contextLength: number
  readonly hasChatTemplate: boolean
}

/**
 * How much an engine takes at a time. `batch`: one batch, and no other before all of it has ended.
 * `step`: up to `slots` requests that may join and leave at any step.
 */
export interface EngineCapacity {
  readonly admits: 'batch' | 'step'
  readonly slots: number
}

/**
 * One worker that generates text. `start` resolves when it can; `generate` takes a batch and
 * resolves when each of its requests has ended, in whatever order. A request that fails, fails
 * alone. A rejection of `generate` means that the batch as a whole failed; an `InferenceError` with
 * code `engine_lost` means that the engine is gone and has to be started anew.
 * `close` ends everything it started, is idempotent and complete when it resolves.
 */
export interface InferenceEngine {
  start(): Promise<ModelFacts>
  readonly capacity: EngineCapacity
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  tokenize(text: string): Promise<readonly number[]>
  /**
   * Resolves with the reason when the engine is lost without having been closed; else never. Asked
   * for once, after `start`.
   */
  lost(): Promise<string>
  close(): Promise<void>
}

/** Makes the engine of one worker; nothing runs before its `start`. */
export type CreateEngine = (worker: EngineWorker) => InferenceEngine

/** Which worker an engine is to be. */
export interface EngineWorker {
  /** Counts from 0; a restarted worker keeps its index. */
  readonly index: number
  readonly workerId: string
}
