/** The port that every inference engine implements. */

import type { FinishReason } from '../../tasks/spec.ts'

/** A message of a conversation. `content` is the text of all its text parts, joined. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** The tool calls that an assistant message requested. */
  readonly toolCalls?: readonly ToolCall[]
  /** In a `tool` message: the id of the call whose result the message contains. */
  readonly toolCallId?: string
  readonly name?: string
  /** In an assistant message: the reasoning that preceded the answer. */
  readonly reasoning?: string
}

/** A function that the model may ask the client to call. */
export interface ToolDefinition {
  readonly name: string
  readonly description?: string
  /** The JSON schema of the arguments. */
  readonly parameters?: object
}

/** The model's request to call a tool. The client sends the result back as a `tool` message. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  /** The arguments as JSON text. */
  readonly arguments: string
}

/** Pieces with the same `index` form one call. Only the first has the id and the name. */
export interface ToolCallPiece {
  readonly index: number
  readonly id?: string
  readonly name?: string
  readonly arguments: string
}

/** The model may call tools, must call none, must call one, or must call the named one. */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

/** The text to continue: a conversation, formatted by the model's chat template, or raw text. */
export type GenerationInput = ChatInput | TextInput

/** A conversation, with the tools that the model may call. */
export interface ChatInput {
  readonly kind: 'chat'
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly ToolDefinition[]
  readonly toolChoice?: ToolChoice
  /** `false` allows at most one tool call per answer. Default `true`. */
  readonly parallelToolCalls?: boolean
  /** Variables of the model's chat template, such as `enable_thinking`. */
  readonly templateArguments?: Readonly<Record<string, unknown>>
  /** How much the model reasons before it answers. Only some chat templates read this. */
  readonly reasoningEffort?: string
  /** Whether the model continues the last message, a text of the assistant. Default `false`. */
  readonly continuesFinalMessage?: boolean
  /** Whether, or how much, the model should reason. A model that cannot choose ignores it. */
  readonly thinking?: boolean | string
}

/** Raw text, which the model continues without a chat template. */
export interface TextInput {
  readonly kind: 'text'
  readonly text: string
  /** The prompt as token ids. If given, it replaces `text`. */
  readonly tokens?: readonly number[]
  /**
   * Whether the embedding of the text is requested instead of its continuation. Only engines whose
   * `ModelFacts.fields` contain `embeddings` receive such requests.
   */
  readonly wantsEmbedding?: boolean
}

/**
 * The required format of the output: any text, a JSON object, JSON that matches a schema, or text
 * that matches a regular expression, a list of choices or a llama.cpp grammar (GBNF). `field` names
 * the request field that requires the format. Engines need not support the last three formats.
 */
export type OutputFormat =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: object; readonly field?: string }
  | { readonly kind: 'regex'; readonly pattern: string; readonly field?: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[]; readonly field?: string }
  | { readonly kind: 'grammar'; readonly grammar: string; readonly field?: string }

/** How tokens are sampled. Defaults have already been filled in. */
export interface Sampling {
  readonly maxTokens: number
  /** 0 always selects the most likely token. */
  readonly temperature: number
  readonly topP: number
  /** The number of most likely tokens to sample from; 0 for all tokens. */
  readonly topK: number
  readonly minP: number
  /** 1 applies no penalty. */
  readonly repetitionPenalty: number
  /** Subtracted once from the logit of every token that the answer contains. 0 for no penalty. */
  readonly presencePenalty: number
  /** Subtracted from a token's logit once per occurrence in the answer. 0 for no penalty. */
  readonly frequencyPenalty: number
  /** A number per token id, added to the token's logit. */
  readonly logitBias: Readonly<Record<string, number>>
  readonly seed: number | null
  readonly stop: readonly string[]
  readonly ignoreEos: boolean
  /** How many of the likeliest alternatives to report for each token; `null` for no logprobs. */
  readonly logprobs: number | null
  /** Whether to report the prompt before the answer, with log probabilities if requested. */
  readonly echo: boolean
  readonly format: OutputFormat
}

/** One text to generate. */
export interface GenerationRequest {
  /** Unique among the requests of an engine. Every call of the listener passes this id. */
  readonly id: string
  readonly input: GenerationInput
  readonly sampling: Sampling
  /** Aborts the request: the engine stops within one token and reports `canceled`. */
  readonly signal: AbortSignal
}

/** A token and its log probability (natural logarithm). */
export interface TokenChance {
  readonly token: string
  readonly logprob: number
  /** The bytes of a token that is only part of a character. `token` then contains U+FFFD. */
  readonly bytes?: readonly number[]
}

/** A sampled token with the most likely alternatives. */
export interface TokenLogprob extends TokenChance {
  readonly top: readonly TokenChance[]
}

/** The prompt as the model read it. */
export interface PromptReport {
  readonly text: string
  /** One element per token of the prompt as sent. Empty unless logprobs were requested. */
  readonly logprobs: readonly PromptLogprob[]
}

/** A token of the prompt. The `logprob` of the first token is `null`. */
export interface PromptLogprob extends Omit<TokenLogprob, 'logprob'> {
  readonly logprob: number | null
}

/** More output of a request. */
export interface GenerationDelta {
  readonly text: string
  readonly logprobs?: readonly TokenLogprob[]
  /** Complete tool calls. An engine reports calls either here or in `toolCallPieces`. */
  readonly toolCalls?: readonly ToolCall[]
  readonly toolCallPieces?: readonly ToolCallPiece[]
  /** More of the reasoning before the answer. */
  readonly reasoning?: string
  /** The prompt. Present only if `echo` is set and the engine supports `echo.logprobs`. */
  readonly prompt?: PromptReport
  /**
   * The number of prompt tokens, in the first delta if known, because canceled requests need it
   * too.
   */
  readonly promptTokens?: number
  /** The embedding of the text, a unit vector. Present only if the request wants it. */
  readonly embedding?: Float32Array
}

export type { FinishReason }

/** The token counts of a request; estimated if the server behind an engine does not report them. */
export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
  /** Additional usage fields of the API, such as `prompt_tokens_details`. */
  readonly details?: Readonly<Record<string, unknown>>
}

/** How a request ended. Its deltas are the complete output only if the kind is `done`. */
export type GenerationEnd =
  | { readonly kind: 'done'; readonly finishReason: FinishReason; readonly usage: Usage }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'canceled' }

/** Receives everything that an engine reports. Its methods never throw. */
export interface GenerationListener {
  /**
   * Receives more output. All deltas together are the whole output. Returns a promise if the reader
   * is slow; the engine must then pause this request until the promise settles.
   */
  delta(id: string, delta: GenerationDelta): Promise<void> | undefined
  /** Called once for every request, after its last delta. */
  end(id: string, end: GenerationEnd): void
}

/** A prompt as the model reads it. */
export interface PromptTokens {
  readonly text: string
  readonly tokens: readonly number[]
}

/** What an engine knows about its model once it has started. */
export interface ModelFacts {
  readonly name: string
  /** The maximum number of tokens of prompt and output together. */
  readonly contextLength: number
  readonly hasChatTemplate: boolean
  /** The source of the chat template, if the engine knows it. */
  readonly chatTemplate?: string
  /** `embedding` if the model generates no text. Default `chat`. */
  readonly purpose?: 'chat' | 'embedding'
  /** The settings that the engine has chosen itself, and why, in one line. */
  readonly tuning?: string
  /**
   * The request fields that the engine supports besides those of `Sampling` and `GenerationInput`:
   * a name such as `grammar`; `messages.NAME` for a field of messages; `messages.name` for the
   * names of participants other than tools; `prompt.tokens` for prompts of token ids;
   * `echo.logprobs` for log probabilities of prompts; `embeddings` for embeddings. A request with
   * any other field that would change the answer is refused before it reaches the engine. Default:
   * none.
   */
  readonly fields?: readonly string[]
}

/**
 * How an engine accepts requests: at most `slots` at a time. With `batch`, it accepts one batch,
 * and the next batch only after all requests of the first have ended. With `step`, requests may
 * join and leave at any step.
 */
export interface EngineCapacity {
  readonly admits: 'batch' | 'step'
  readonly slots: number
}

/**
 * One worker that generates text. `start` resolves when the engine is ready. `generate` takes a
 * batch and resolves when all of its requests have ended, in any order. A request that fails must
 * not affect the others. If `generate` rejects, the batch failed as a whole; if it rejects with an
 * `InferenceError` with the code `engine_lost`, the engine is lost and must be replaced.
 */
export interface InferenceEngine {
  /** Loads the model, or connects to it. Called once, before anything else. */
  start(): Promise<ModelFacts>
  readonly capacity: EngineCapacity
  /** The node that runs the model, read after `start`. Absent if the model runs on this machine. */
  readonly nodeId?: string | undefined
  /** Reports the output of each request to the listener; resolves when all requests have ended. */
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  /** Splits a text into the model's tokens and returns their ids. */
  tokenize(text: string): Promise<readonly number[]>
  /** Returns the text of tokens, including that of control tokens. */
  detokenize?(tokens: readonly number[]): Promise<string>
  /** Returns the input as the model reads it, for example rendered by the chat template. */
  readPrompt?(input: GenerationInput): Promise<PromptTokens>
  /**
   * Resolves with the reason if the engine is lost before it is closed; otherwise stays pending.
   * Called once, after `start`.
   */
  lost(): Promise<string>
  /** Returns why the engine seems not to work, for `/health`; `null` if it works. */
  problem?(): string | null
  /** Ends everything that the engine started; resolves when that is done. Idempotent. */
  close(): Promise<void>
}

/** Creates the engine of one worker. The engine runs nothing before its `start`. */
export type CreateEngine = (worker: EngineWorker) => InferenceEngine

/** The worker that an engine is created for. */
export interface EngineWorker {
  /** The index of the worker, from 0. A restarted worker keeps its index. */
  readonly index: number
  readonly workerId: string
}
