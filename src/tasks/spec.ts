/**
 * What a backend needs to know of a task, as plain data for threads, launcher processes and other
 * machines. Specs survive a structured clone; those of programs and prompts also survive JSON. A
 * copy is equivalent to the original.
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
        /** Required by some servers. The answer does not depend on it. */
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

/** How an answer is sampled. The model or its configuration determines absent options. */
export interface SamplingOptions {
  /** Instructions for the model before the prompt. */
  readonly systemPrompt?: string
  /** From 0 to 2. */
  readonly temperature?: number
  /** An answer that reaches this many tokens is cut; its `finishReason` is then `length`. */
  readonly maxTokens?: number
  /** Above 0, at most 1. */
  readonly topP?: number
  /** How many of the most likely tokens are considered; 0 for all. */
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
  /** The session's directory, against which `cwd` is resolved; `null` for the backend's. */
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
  /** Text, or bytes as base64, because JSON cannot represent bytes. */
  readonly stdin: string | { readonly base64: string } | null
  readonly shell: boolean
  /** Files for the output, relative to the program's working directory. */
  readonly captureStdio: { readonly stdout?: string; readonly stderr?: string } | null
  /** Whether the program's exit kills the rest of its group; otherwise closing the session does. */
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
  /** `null` if the backend chooses the model. */
  readonly model: string | null
  readonly sampling: SamplingOptions
}

/**
 * Everything that a worker needs to run a task. Must not be changed, although it is not frozen:
 * freezing one object per task would cost a tenth of a submission's CPU time.
 */
export type TaskSpec = FunctionSpec | ClosureSpec | ProgramSpec | PromptSpec

/** The spec with the session's working directory, if the session has one. */
export function inWorkDir(spec: TaskSpec, workDir: string | null): TaskSpec {
  return workDir === null ? spec : { ...spec, workDir }
}
