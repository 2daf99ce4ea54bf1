/**
 * What a backend needs of a task, as plain data: the same for a thread, a launcher process and
 * another machine. It survives a structured clone; that of a program or prompt also survives JSON.
 * A copy is equivalent to the original.
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
        /** For users, and for servers that require one; the answer does not depend on it. */
        readonly name?: string
        readonly description?: string
        /** A JSON schema. */
        readonly schema: object
        readonly strict?: boolean
      }
    }

/**
 * Why an answer ended: by itself or at a `stop` text (`stop`), because it reached its limit of
 * tokens and is cut (`length`), with a tool call, or because a guardrail cut it (`content_filter`).
 */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/** How an answer is sampled. The model or the configuration decides about absent options. */
export interface SamplingOptions {
  /** Instructions for the model before the prompt. */
  readonly systemPrompt?: string
  /** From 0 to 2. */
  readonly temperature?: number
  /** An answer that reaches this many tokens is cut; its `finishReason` is then `length`. */
  readonly maxTokens?: number
  /** Above 0, at most 1. */
  readonly topP?: number
  /** How many of the likeliest tokens are considered; 0 for all. */
  readonly topK?: number
  /** Texts at which the answer ends. They are not part of the answer. */
  readonly stop?: string | readonly string[]
  /** Initializes the random numbers: the same seed and prompt give the same answer if possible. */
  readonly seed?: number
  /** Restricts the answer to JSON, or to JSON that fits a schema. Default: any text. */
  readonly responseFormat?: ResponseFormat
}

interface CommonSpec {
  /** The name in events: the program's path, the function's name or the model's name. */
  readonly executable: string
  /** Tasks with a higher priority run earlier. */
  readonly priority: number
  /** How long an attempt may run; `null` for no limit. */
  readonly timeoutSeconds: number | null
  readonly resources: ResourceRequest
  /** The session's directory, to which a program's `cwd` is relative; `null` for the backend's. */
  readonly workDir: string | null
}

/** A function of `defineTask`, whose module the worker imports. */
export interface FunctionSpec extends CommonSpec {
  readonly kind: 'function'
  readonly definition: TaskDefinition
  readonly args: readonly unknown[]
}

/**
 * A plain closure. It cannot be sent: its function and arguments stay with the task, and a backend
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
  /** Text, or bytes in base64, because JSON can represent both. */
  readonly stdin: string | { readonly base64: string } | null
  readonly shell: boolean
  /** Files for the output, relative to the program's working directory. */
  readonly captureStdio: { readonly stdout?: string; readonly stderr?: string } | null
  /** Whether its end ends the rest of its process group; otherwise the session's end does. */
  readonly killBackground: boolean
  /** Whether processes that have left its group (`setsid`) end with it; needs `/proc`. */
  readonly isFollowed?: true
  /** `resources.cores` if the task set it, for the program's environment; else `null`. */
  readonly namedCores: number | null
}

/** A prompt, or a list of them, for a language model. */
export interface PromptSpec extends CommonSpec {
  readonly kind: 'prompt'
  readonly prompt: string | readonly string[]
  /** `null` for the backend's own. */
  readonly model: string | null
  readonly sampling: SamplingOptions
}

/**
 * Everything that a worker needs to run a task. Never changed after its task is created; not
 * frozen, because freezing an object per task costs a tenth of a submission's CPU time.
 */
export type TaskSpec = FunctionSpec | ClosureSpec | ProgramSpec | PromptSpec

/** The spec with the session's working directory, if it has one. */
export function inWorkDir(spec: TaskSpec, workDir: string | null): TaskSpec {
  return workDir === null ? spec : { ...spec, workDir }
}
