/** The port that every inference engine implements. */

import type { FinishReason } from '../../tasks/spec.ts'

/** A message of a conversation. Text parts are joined into `content`. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** The calls that an assistant requested. */
  readonly toolCalls?: readonly ToolCall[]
  /** The id of the call whose outcome a `tool` message contains. */
  readonly toolCallId?: string
  readonly name?: string
  /** The reasoning of an assistant before its answer. */
  readonly reasoning?: string
}

/** A function that the model may ask the client to call. */
export interface ToolDefinition {
  readonly name: string
  readonly description?: string
  /** The JSON schema of the arguments. */
  readonly parameters?: object
}

/** A request of the model to call a tool; the client sends the outcome as a `tool` message. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  /** The arguments as JSON text. */
  readonly arguments: string
}

/**
 * A piece of a tool call. The first piece of an index has the id and the name; the `arguments` of
 * all pieces of an index, joined, are those of the call.
 */
export interface ToolCallPiece {
  readonly index: number
  readonly id?: string
  readonly name?: string
  readonly arguments: string
}

/**
 * Whether the model may call tools, must not, must call at least one, or must call the named one.
 */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

/** What to continue: a conversation, formatted by the model's chat template, or raw text. */
export type GenerationInput = ChatInput | TextInput

/** A conversation. */
export interface ChatInput {
  readonly kind: 'chat'
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly ToolDefinition[]
  readonly toolChoice?: ToolChoice
  /** `false` allows one call at most. Default `true`. */
  readonly parallelToolCalls?: boolean
  /** Variables of the model's chat template, such as `enable_thinking`. */
  readonly templateArguments?: Readonly<Record<string, unknown>>
  /** How much the model reasons before it answers, for templates that read it. */
  readonly reasoningEffort?: string
}

/** Raw text. */
export interface TextInput {
  readonly kind: 'text'
  readonly text: string
  /** The prompt as token ids, in place of the text. */
  readonly tokens?: readonly number[]
}

/**
 * The required format of the output: any text, a JSON object, JSON that matches a schema, or a text
 * by a regular expression, a list of choices or a grammar of llama.cpp (GBNF). `field` names the
 * field of the request that requires it. Engines need not support the last three formats.
 */
export type OutputFormat =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: object; readonly field?: string }
  | { readonly kind: 'regex'; readonly pattern: string; readonly field?: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[]; readonly field?: string }
  | { readonly kind: 'grammar'; readonly grammar: string; readonly field?: string }

/** How tokens are sampled; defaults have been filled in. */
export interface Sampling {
  readonly maxTokens: number
  /** 0 always selects the most likely token. */
  readonly temperature: number
  readonly topP: number
  /** 0 considers all tokens. */
  readonly topK: number
  readonly minP: number
  /** 1 changes nothing. */
  readonly repetitionPenalty: number
  /** Subtracted once from the logit of a token that the answer contains. 0 changes nothing. */
  readonly presencePenalty: number
  /** Subtracted from a token's logit once for each occurrence in the answer. 0 changes nothing. */
  readonly frequencyPenalty: number
  /** Numbers that are added to the logits of tokens, by token id. */
  readonly logitBias: Readonly<Record<string, number>>
  readonly seed: number | null
  readonly stop: readonly string[]
  readonly ignoreEos: boolean
  /** How many of the likeliest alternatives to report for each token; `null` for no logprobs. */
  readonly logprobs: number | null
  /** Whether a delta before the text reports the prompt, with its logprobs if `logprobs` is set. */
  readonly echo: boolean
  readonly format: OutputFormat
}

/** One text to generate. */
export interface GenerationRequest {
  /**
   * Unique among the requests of an engine; the calls of the listener name it. Order has no
   * meaning.
   */
  readonly id: string
  readonly input: GenerationInput
  readonly sampling: Sampling
  /**
   * Aborts the request: the engine stops within one token and reports `canceled`, even if the text
   * was complete by then.
   */
  readonly signal: AbortSignal
}

/** A token and its log probability (natural logarithm). */
export interface TokenChance {
  readonly token: string
  readonly logprob: number
  /** The bytes of a token that is only a part of a character, which `token` shows as U+FFFD. */
  readonly bytes?: readonly number[]
}

/** A sampled token with the most likely alternatives. */
export interface TokenLogprob extends TokenChance {
  readonly top: readonly TokenChance[]
}

/** The prompt as the model read it. */
export interface PromptReport {
  readonly text: string
  /**
   * One for each token, except a token that the engine put before the prompt; empty if not asked
   * for.
   */
  readonly logprobs: readonly PromptLogprob[]
}

/**
 * A token of the prompt. The first token has the log probability `null`, because none precedes it.
 */
export interface PromptLogprob extends Omit<TokenLogprob, 'logprob'> {
  readonly logprob: number | null
}

/** More output of a request. */
export interface GenerationDelta {
  readonly text: string
  readonly logprobs?: readonly TokenLogprob[]
  /** Complete calls. An engine reports calls either complete or in pieces. */
  readonly toolCalls?: readonly ToolCall[]
  readonly toolCallPieces?: readonly ToolCallPiece[]
  /** More of the reasoning before the answer. */
  readonly reasoning?: string
  /** Only if `echo` is set and the engine supports `echo.logprobs`. */
  readonly prompt?: PromptReport
  /**
   * With the first delta, if known by then, so that a canceled or blocked request has a usage too.
   */
  readonly promptTokens?: number
}

export type { FinishReason }

/** The token counts of a request; estimated if the server behind an engine does not report them. */
export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
  /** Additional fields of the usage, such as `prompt_tokens_details`. */
  readonly details?: Readonly<Record<string, unknown>>
}

/** How a request ended. Only with `done` are its deltas complete. */
export type GenerationEnd =
  | { readonly kind: 'done'; readonly finishReason: FinishReason; readonly usage: Usage }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'canceled' }

/** Receives everything that an engine reports. No call throws. */
export interface GenerationListener {
  /**
   * Receives more output; all deltas together are the output. While a returned promise is pending,
   * because the reader is slow, the engine must pause this request.
   */
  delta(id: string, delta: GenerationDelta): Promise<void> | undefined
  /** Called once for every request, after its last delta. */
  end(id: string, end: GenerationEnd): void
}

/** The facts of a model, known once an engine has started. */
export interface ModelFacts {
  readonly name: string
  /** The maximum number of tokens of prompt and output together. */
  readonly contextLength: number
  readonly hasChatTemplate: boolean
  /**
   * The fields of a request's body that the engine supports besides those of `Sampling` and
   * `GenerationInput`: their names, such as `grammar`; `messages.NAME` for fields of messages;
   * `messages.name` for the names of participants other than tools; `prompt.tokens` for prompts of
   * token ids; `echo.logprobs` for log probabilities of prompts. A request with another field that
   * would change the answer does not reach the engine. Default: none.
   */
  readonly fields?: readonly string[]
}

/**
 * How many requests an engine takes at a time. `batch`: one batch; the next one only after all of
 * its requests have ended. `step`: up to `slots` requests, which may join and leave at any step.
 */
export interface EngineCapacity {
  readonly admits: 'batch' | 'step'
  readonly slots: number
}

/**
 * One worker that generates text. `start` resolves when it is ready. `generate` takes a batch and
 * resolves when all of its requests have ended, in any order. A request that fails must not affect
 * the others. A rejection of `generate` means that the batch failed as a whole; an `InferenceError`
 * with the code `engine_lost` means that the engine is gone and has to be restarted.
 * `close` ends everything that the engine started, is idempotent, and complete when it resolves.
 */
export interface InferenceEngine {
  /** Loads the model, or connects to it. Called once, before anything else. */
  start(): Promise<ModelFacts>
  readonly capacity: EngineCapacity
  /** The node of its model, read after `start`; absent for a model on this machine. */
  readonly nodeId?: string | undefined
  /** Answers requests by calls of the listener; resolves when all of them have ended. */
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  /** The ids of the tokens of a text, as the model counts them. */
  tokenize(text: string): Promise<readonly number[]>
  /**
   * Resolves with the reason if the engine is lost without having been closed; otherwise never.
   * Called once, after `start`.
   */
  lost(): Promise<string>
  /**
   * Why the engine seems not to work although it is not lost, for `/health`; `null` if it works.
   */
  problem?(): string | null
  /** Ends everything that the engine started. Idempotent, and complete when it resolves. */
  close(): Promise<void>
}

/** Creates the engine of one worker; nothing runs before its `start`. */
export type CreateEngine = (worker: EngineWorker) => InferenceEngine

/** The worker that an engine is created for. */
export interface EngineWorker {
  /** The index of the worker, from 0; a restarted worker keeps it. */
  readonly index: number
  readonly workerId: string
}
