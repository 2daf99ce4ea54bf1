/** The port that every inference engine implements. */

import type { FinishReason } from '../../tasks/spec.ts'

/** Fields of the API as a client or a server wrote them, by their names there. */
export type WireFields = Readonly<Record<string, unknown>>

/** A message of a conversation. Text parts are joined into `content`. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** The calls that an assistant requested. */
  readonly toolCalls?: readonly ToolCall[]
  /** The call whose outcome a `tool` message contains. */
  readonly toolCallId?: string
  readonly name?: string
  /** What an assistant thought before it answered. */
  readonly reasoning?: string
  /**
   * The message as the client wrote it, with parts that are not text, for an engine that supports
   * `all` fields. Of it, `content` and `toolCalls` may have been changed by guardrails and win.
   */
  readonly wire?: WireFields
}

/** A function that the model may request to call. It is the client that calls it. */
export interface ToolDefinition {
  readonly name: string
  readonly description?: string
  /** A JSON schema of the arguments. */
  readonly parameters?: object
  /** The tool as the client wrote it, for an engine that supports `all` fields. */
  readonly wire?: WireFields
}

/** A request of the model to call a tool; the client sends the outcome as a `tool` message. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  /** JSON text. */
  readonly arguments: string
  /** The call as the client or the server wrote it. */
  readonly wire?: WireFields
}

/**
 * A piece of a tool call. The first one of an index has the id and the name; the arguments of all
 * together are those of the call.
 */
export interface ToolCallPiece {
  readonly index: number
  readonly id?: string
  readonly name?: string
  readonly arguments: string
  /** The piece as the server wrote it. */
  readonly wire?: WireFields
}

/** Whether the model may call tools, must not, must call one, or must call the named one. */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

/**
 * What to continue: a conversation, formatted by the model's chat template, or raw text. `fields`
 * has all further fields of the client's body, for an engine that supports `all` of them; what they
 * say about sampling wins.
 */
export type GenerationInput =
  | {
      readonly kind: 'chat'
      readonly messages: readonly ChatMessage[]
      readonly tools?: readonly ToolDefinition[]
      readonly toolChoice?: ToolChoice
      /** `false`: one call at most. Default `true`. */
      readonly parallelToolCalls?: boolean
      /** Variables of the model's chat template, such as `enable_thinking`. */
      readonly templateArguments?: WireFields
      /** How much the model thinks, for templates that know it. */
      readonly reasoningEffort?: string
      readonly fields?: WireFields
    }
  | {
      readonly kind: 'text'
      readonly text: string
      /** The prompt as token ids, in place of the text. */
      readonly tokens?: readonly number[]
      readonly fields?: WireFields
    }

/**
 * The required format of the output: any text, a JSON object, JSON that matches a schema, or a text
 * by a regular expression, a list of choices or a grammar of llama.cpp (GBNF). `field` is the field
 * of the request that says so. Engines need not support the last three.
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
  /** 0 always takes the most likely token. */
  readonly temperature: number
  readonly topP: number
  /** 0 considers all tokens. */
  readonly topK: number
  readonly minP: number
  /** 1 changes nothing. */
  readonly repetitionPenalty: number
  /** Taken off a token's logit once if the answer has it. 0 changes nothing. */
  readonly presencePenalty: number
  /** Taken off a token's logit for each time that the answer has it. 0 changes nothing. */
  readonly frequencyPenalty: number
  /** Added to the logits of tokens, by their ids. */
  readonly logitBias: Readonly<Record<string, number>>
  readonly seed: number | null
  readonly stop: readonly string[]
  readonly ignoreEos: boolean
  /** How many likely alternatives to report for each token; `null` for no logprobs. */
  readonly logprobs: number | null
  /** Whether the prompt is reported with a delta before the text, with its logprobs if any. */
  readonly echo: boolean
  readonly format: OutputFormat
}

/** One text to generate. */
export interface GenerationRequest {
  /** Unique among the requests of an engine. Its calls refer to it; order has no meaning. */
  readonly id: string
  readonly input: GenerationInput
  readonly sampling: Sampling
  /**
   * Aborts it: the engine stops within one token and reports `canceled`, also if the text was
   * complete by then.
   */
  readonly signal: AbortSignal
}

/** A token and its log probability (natural logarithm). */
export interface TokenChance {
  readonly token: string
  readonly logprob: number
  /** The bytes of a part of a character, which `token` shows as U+FFFD. */
  readonly bytes?: readonly number[]
}

/** The sampled token, with the most likely alternatives. */
export interface TokenLogprob extends TokenChance {
  readonly top: readonly TokenChance[]
}

/** The prompt as the model read it. */
export interface PromptReport {
  readonly text: string
  /** Of each token, without one that the engine put before the prompt; empty if not asked for. */
  readonly logprobs: readonly PromptLogprob[]
}

/** A token of the prompt; nothing comes before the first one, whose log probability is `null`. */
export interface PromptLogprob extends Omit<TokenLogprob, 'logprob'> {
  readonly logprob: number | null
}

/** More output of a request. */
export interface GenerationDelta {
  readonly text: string
  readonly logprobs?: readonly TokenLogprob[]
  /** Complete calls; an engine reports calls so, or in pieces. */
  readonly toolCalls?: readonly ToolCall[]
  readonly toolCallPieces?: readonly ToolCallPiece[]
  readonly fields?: AnswerFields
  /** With the first delta: fields of the request that the server of an engine says it ignored. */
  readonly ignored?: readonly string[]
  /** Only where `echo` is set, and the engine supports `echo.logprobs`. */
  readonly prompt?: PromptReport
  /** With the first delta, if known by then: the usage of a request that is cut off. */
  readonly promptTokens?: number
}

/**
 * Further fields of an answer, as a server sent them. Texts of `message`, such as
 * `reasoning_content`, come in pieces, as lists do.
 */
export interface AnswerFields {
  /** Of the message, or of its delta. */
  readonly message?: WireFields
  readonly choice?: WireFields
  /** Of the whole response. */
  readonly body?: WireFields
}

export type { FinishReason }

/** The token counts of a request; estimated if the server of an engine does not report them. */
export interface Usage {
  readonly promptTokens: number
  readonly completionTokens: number
  /** Further fields of the usage, such as `prompt_tokens_details`. */
  readonly details?: WireFields
}

/** How a request ended. Only with `done` are its deltas complete. */
export type GenerationEnd =
  | {
      readonly kind: 'done'
      readonly finishReason: FinishReason
      readonly usage: Usage
      /** What came after the last delta. */
      readonly fields?: AnswerFields
    }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'canceled' }

/** Receives everything that an engine reports. No call throws. */
export interface GenerationListener {
  /**
   * More text; all deltas together are the output. While a returned promise is pending, because the
   * reader is slow, the engine must pause this request.
   */
  delta(id: string, delta: GenerationDelta): Promise<void> | undefined
  /** Once for every request, after its last delta. */
  end(id: string, end: GenerationEnd): void
}

/** The facts of a model, known once an engine has started. */
export interface ModelFacts {
  readonly name: string
  /** In tokens, prompt and output together. */
  readonly contextLength: number
  readonly hasChatTemplate: boolean
  /** Default: none besides those of `Sampling` and `GenerationInput`. */
  readonly fields?: SupportedFields
  /** Paths that `forward` answers. Default none. */
  readonly paths?: readonly string[]
}

/**
 * The fields of a request's body that an engine supports besides those of `Sampling` and
 * `GenerationInput`: their names, such as `grammar`, and `messages.NAME` for fields of messages;
 * `prompt.tokens` for prompts of token ids, `echo.logprobs` for log probabilities of prompts.
 * `all` if it sends every field on to a server, which decides. A request with another field that
 * would change the answer does not reach the engine.
 */
export type SupportedFields = 'all' | readonly string[]

/**
 * How many requests an engine takes at a time. `batch`: one batch, and the next one after all of it
 * has ended. `step`: up to `slots` requests, which may join and leave at any step.
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
  /** Answers requests by calls of the listener; resolves when all of them have ended. */
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  /** The ids of the tokens of a text, as the model counts them. */
  tokenize(text: string): Promise<readonly number[]>
  /** Only of engines whose `ModelFacts` name `paths`: passes a request for one of them on. */
  forward?(call: ForwardedCall): Promise<ForwardedAnswer>
  /**
   * Resolves with the reason if the engine is lost without having been closed; otherwise never.
   * Called once, after `start`.
   */
  lost(): Promise<string>
  /** Why it seems not to work, though it is not lost, for `/health`; `null` if it works. */
  problem?(): string | null
  /** Ends what it started. Idempotent, and complete when it resolves. */
  close(): Promise<void>
}

/** A request for a path that does not generate text the usual way, such as `/v1/embeddings`. */
export interface ForwardedCall {
  readonly path: string
  /** The body as the client wrote it; the engine adds the name of its model. */
  readonly fields: WireFields
  /** Ends the call, also while its answer is read. */
  readonly signal: AbortSignal
}

/** A successful answer. Its bytes must be read to the end, or the call aborted. */
export interface ForwardedAnswer {
  readonly status: number
  readonly contentType: string
  readonly bytes: AsyncIterable<Uint8Array>
  /** Fields of the request that the server says it ignored. */
  readonly ignored?: readonly string[]
}

/** Creates the engine of one worker; nothing runs before its `start`. */
export type CreateEngine = (worker: EngineWorker) => InferenceEngine

/** The worker that an engine is created for. */
export interface EngineWorker {
  /** From 0; a restarted worker keeps its index. */
  readonly index: number
  readonly workerId: string
}
