/**
 * What a backend needs of a task, as plain data: the same for a thread, a launcher process and
 * another machine. It survives a structured clone, that of a program or prompt JSON as well; a copy
 * means the same as the original.
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
        /** For people and for servers that ask for one; the answer does not depend on it. */
        readonly name?: string
        readonly description?: string
        /** A JSON schema. */
        readonly schema: object
        readonly strict?: boolean
      }
    }

/**
 * Why an answer ended: by itself or at a `stop` text (`stop`), at its limit of tokens, so that it
 * is cut (`length`), with a call of a tool, or because a guardrail cut it (`content_filter`).
 */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

/** How an answer is sampled. What is absent is the model's or the configuration's choice. */
export interface SamplingOptions {
  /** What the model is told before the prompt. */
  readonly systemPrompt?: string
  /** 0 to 2. */
  readonly temperature?: number
  /** An answer that reaches this many tokens is cut there: `finishReason` is `length` then. */
  readonly maxTokens?: number
  /** Above 0 to 1. */
  readonly topP?: number
  /** Of how many of the likeliest tokens one is chosen; 0 for all. */
  readonly topK?: number
  /** Texts at which the answer ends. They are not part of it. */
  readonly stop?: string | readonly string[]
  /** Starts the random numbers: the same seed and prompt give the same answer, where possible. */
  readonly seed?: number
  /** The answer is JSON, or JSON that fits a schema. Default: any text. */
  readonly responseFormat?: ResponseFormat
}

interface CommonSpec {
  /** What events call it: the program's path, the function's name or the model's name. */
  readonly executable: string
  /** Higher runs earlier. */
  readonly priority: number
  /** How long an attempt may run; `null` for no limit. */
  readonly timeoutSeconds: number | null
  readonly resources: ResourceRequest
  /** The session's folder, to which a program's `cwd` is relative; `null` for the backend's own. */
  readonly workDir: string | null
}

/** A function of `defineTask`: the worker imports its module. */
export interface FunctionSpec extends CommonSpec {
  readonly kind: 'function'
  readonly definition: TaskDefinition
  readonly args: readonly unknown[]
}

/**
 * A plain closure. It cannot be sent anywhere: function and arguments stay with the task, and a
 * backend in the same process asks for them with `ConnectedSession.closureOf`.
 */
export interface ClosureSpec extends CommonSpec {
  readonly kind: 'closure'
}

/** A program, without a shell unless `shell` is set. */
export interface ProgramSpec extends CommonSpec {
  readonly kind: 'program'
  readonly arguments: readonly string[]
  readonly cwd: string | null
  /** Changes to the inherited environment; `null` removes a variable. */
  readonly env: Readonly<Record<string, string | null>> | null
  /** Text, or bytes in base64: JSON can hold both. */
  readonly stdin: string | { readonly base64: string } | null
  readonly shell: boolean
  /** Files for the output, relative to the folder that the program runs in. */
  readonly captureStdio: { readonly stdout?: string; readonly stderr?: string } | null
  /** Whether its end ends what is left in its process group; else the session's end does. */
  readonly killBackground: boolean
  /** Whether processes that have left its group (`setsid`) end with it; needs `/proc`. */
  readonly isFollowed?: true
  /** `resources.cores` if the task named it, for the program's environment; else `null`. */
  readonly namedCores: number | null
}

/** A prompt, or a list of them, for a language model. */
export interface PromptSpec extends CommonSpec {
  readonly kind: 'prompt'
  readonly prompt: string | readonly string[]
  /** `null`: the backend's own. */
  readonly model: string | null
  readonly sampling: SamplingOptions
}

/**
 * Everything that a worker needs to run a task. Never changed once its task is made; not frozen,
 * because freezing one object per task costs a tenth of the CPU time of a submission.
 */
export type TaskSpec = FunctionSpec | ClosureSpec | ProgramSpec | PromptSpec

/** The spec for a session that has a folder of its own. */
export function inWorkDir(spec: TaskSpec, workDir: string | null): TaskSpec {
  return workDir === null ? spec : { ...spec, workDir }
}
