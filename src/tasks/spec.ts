/**
 * Tasks as plain data for backends, threads, launcher processes and other machines. Specs can be
 * copied by structured clone; specs of programs and prompts also as JSON. A copy is equivalent to
 * the original.
 */

import type { TaskDefinition } from './define-task.ts'
import type { ResourceRequest } from './resources.ts'

/**
 * The form of an answer, as in the chat-completions API: any JSON, or JSON that fits a schema.
 *
 * @example
 * const properties = { topic: { enum: ['sport', 'politics'] } }
 * const schema = { type: 'object', properties, required: ['topic'] }
 * const json_schema = { name: 'article', schema }
 * const responseFormat: ResponseFormat = { type: 'json_schema', json_schema }
 */
export type ResponseFormat =
  | { readonly type: 'text' | 'json_object' }
  | {
      readonly type: 'json_schema'
      readonly json_schema: {
        /** A name that some servers require. It does not change the answer. */
        readonly name?: string
        readonly description?: string
        /** A JSON schema. */
        readonly schema: object
        readonly strict?: boolean
      }
    }

/**
 * Why an answer ended: `stop` if it was complete or reached a text of the option `stop`, `length`
 * if it was cut at the limit of tokens, `tool_calls` if it ended with a tool call, `content_filter`
 * if a guardrail cut it.
 */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/**
 * How an answer is sampled. For options that are not set, the model or its configuration decides.
 */
export interface SamplingOptions {
  /** Instructions for the model before the prompt. */
  readonly systemPrompt?: string
  /** The sampling temperature, from 0 to 2. */
  readonly temperature?: number
  /**
   * The maximum number of tokens. If it is reached, the `finishReason` of the answer is `length`.
   */
  readonly maxTokens?: number
  /** The probability mass of the tokens to consider, above 0 and at most 1. */
  readonly topP?: number
  /** The number of most likely tokens to consider; 0 for all tokens. */
  readonly topK?: number
  /** Texts at which the answer ends. They are not part of the answer. */
  readonly stop?: string | readonly string[]
  /** Seeds the sampling. The same seed and prompt give the same answer if the model allows it. */
  readonly seed?: number
  /** Restricts the answer to JSON, or to JSON that fits a schema. Default: any text. */
  readonly responseFormat?: ResponseFormat
}

interface CommonSpec {
  /** The name in events: the program's path, the function's name or the model's name. */
  readonly executable: string
  /** Tasks with a higher priority run earlier. */
  readonly priority: number
  /** The time limit of each attempt; `null` for no limit. */
  readonly timeoutSeconds: number | null
  readonly resources: ResourceRequest
  /**
   * The session's directory, against which `cwd` is resolved; `null` for the backend's directory.
   */
  readonly workDir: string | null
}

/** A function of `defineTask`, whose module the worker imports. */
export interface FunctionSpec extends CommonSpec {
  readonly kind: 'function'
  readonly definition: TaskDefinition
  readonly args: readonly unknown[]
}

/**
 * A plain closure. Its function and arguments cannot be sent, so they stay with the task. A backend
 * in the same process gets them from `ConnectedSession.closureOf`.
 */
export interface ClosureSpec extends CommonSpec {
  readonly kind: 'closure'
}

/** A program, which runs without a shell unless `shell` is set. */
export interface ProgramSpec extends CommonSpec {
  readonly kind: 'program'
  readonly arguments: readonly string[]
  readonly cwd: string | null
  /** Changes to the inherited environment; `null` removes a variable. */
  readonly env: Readonly<Record<string, string | null>> | null
  /** Text, or bytes as base64, because JSON cannot represent bytes; `null` for no input. */
  readonly stdin: string | { readonly base64: string } | null
  readonly shell: boolean
  /** Files for the output, relative to the program's working directory. */
  readonly captureStdio: { readonly stdout?: string; readonly stderr?: string } | null
  /**
   * Whether the other processes in the program's group are killed when the program exits.
   * Otherwise, they are killed when the session closes.
   */
  readonly killBackground: boolean
  /** Whether processes that left the group with `setsid` are killed too; needs `/proc`. */
  readonly isFollowed?: true
  /** `resources.cores` if the caller set it, for the program's environment; otherwise `null`. */
  readonly namedCores: number | null
}

/** A prompt, or a list of them, for a language model. */
export interface PromptSpec extends CommonSpec {
  readonly kind: 'prompt'
  readonly prompt: string | readonly string[]
  /** The name of the model; `null` if the backend chooses it. */
  readonly model: string | null
  readonly sampling: SamplingOptions
}

/**
 * Everything that a worker needs to run a task. It must not be changed, although it is not frozen:
 * freezing one object per task would take a tenth of the CPU time of a submission.
 */
export type TaskSpec = FunctionSpec | ClosureSpec | ProgramSpec | PromptSpec

export function withWorkDir(spec: TaskSpec, workDir: string | null): TaskSpec {
  return workDir === null ? spec : { ...spec, workDir }
}
