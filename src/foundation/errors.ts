/** The library's errors: one base class with a stable `code`, a cause, and an optional hint. */

/** The details that every error of tutti may have. */
export interface ErrorDetails {
  /** A stable code, more precise than the class. Default: the class name. */
  readonly code?: string
  readonly cause?: unknown
  /** What the reader can do about the error. */
  readonly hint?: string
}

/** Creates an error without a stack, which would show only internals and keep objects alive. */
export function withoutStack<T extends Error>(create: () => T): T {
  const { stackTraceLimit } = Error
  // Unlike an assignment, `Reflect.set` does not throw if the property is frozen.
  Reflect.set(Error, 'stackTraceLimit', 0)
  try {
    return create()
  } finally {
    Reflect.set(Error, 'stackTraceLimit', stackTraceLimit)
  }
}

/** The base of every error that the library throws on purpose. */
export class TuttiError extends Error {
  readonly code: string
  declare readonly hint?: string

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, 'cause' in details ? { cause: details.cause } : undefined)
    this.name = new.target.name
    this.code = details.code ?? this.name
    if (details.hint !== undefined) this.hint = details.hint
  }

  /** Like `instanceof`, but also recognizes the errors of other copies of the package. */
  static isInstance<T extends TuttiError>(
    this: abstract new (...args: never[]) => T,
    value: unknown,
  ): value is T {
    if (value instanceof this) return true
    const mark = errorMarks.get(this)?.mark
    return mark !== undefined && typeof value === 'object' && value !== null && mark in value
  }
}

type ErrorClass = Pick<typeof TuttiError, 'isInstance' | 'prototype'>

/** The library's error classes, each after its superclass. */
const errorMarks = new Map<object, { readonly name: string; readonly mark: symbol }>()

/** Marks public error classes, so that every copy of the package recognizes their instances. */
export function registerErrorClasses(classes: Readonly<Record<string, ErrorClass>>): void {
  for (const [name, errorClass] of Object.entries(classes)) {
    const mark = Symbol.for(`tutti.error.${name}`)
    Object.defineProperty(errorClass.prototype, mark, { value: true })
    errorMarks.set(errorClass, { name, mark })
  }
}

/** The names of the library's classes that an error belongs to, the most specific one first. */
export function listErrorClasses(error: object): readonly string[] {
  const found = [...errorMarks.values()].filter(({ mark }) => mark in error)
  return found.map(({ name }) => name).toReversed()
}

export function findErrorClass(wanted: string): ErrorClass | undefined {
  for (const [errorClass, { name }] of errorMarks)
    if (name === wanted) return errorClass as ErrorClass
  return undefined
}

/** Which value is wrong, and what was expected instead. */
export interface ValueErrorDetails extends ErrorDetails {
  /** The path of the wrong value, such as `tasks[417].backend`. */
  readonly field?: string
  readonly expected?: string
  readonly got?: unknown
}

/** Invalid input: `field` is the path of the value `got`, and `expected` describes a valid one. */
export class ValueError extends TuttiError {
  declare readonly field?: string
  declare readonly expected?: string
  declare readonly got?: unknown

  constructor(message: string, details: ValueErrorDetails = {}) {
    super(message, details)
    if (details.field !== undefined) this.field = details.field
    if (details.expected !== undefined) this.expected = details.expected
    if ('got' in details) this.got = details.got
  }
}

/** The call is not allowed in the object's current state. */
export class StateError extends TuttiError {}

/** A time limit was exceeded. If only a wait has ended, the awaited operation continues. */
export class TimeoutError extends TuttiError {}

/** A worker or node was lost while it ran the task. */
export class WorkerLostError extends TuttiError {}

/** Several workers in a row were lost while they ran the same task. */
export class PoisonTaskError extends WorkerLostError {}

/** An execution backend failed as a whole. */
export class BackendError extends TuttiError {}

/** The result of one prompt: its text, or an error. Uses the field names of the HTTP API. */
export type GenerateResult = GeneratedText | FailedPrompt

/** A prompt that was answered. */
export interface GeneratedText {
  readonly text: string
  readonly finish_reason: 'stop' | 'length' | 'tool_calls' | 'content_filter'
  readonly usage: {
    readonly prompt_tokens: number
    readonly completion_tokens: number
    readonly total_tokens: number
  }
  readonly error?: undefined
}

/** A prompt that failed or was blocked. */
export interface FailedPrompt {
  readonly error: { readonly code: string; readonly message: string }
  readonly text?: undefined
  readonly finish_reason?: undefined
  readonly usage?: undefined
}

/** The results of the prompts of a failed task, or why a request was refused. */
export interface InferenceErrorDetails extends ErrorDetails {
  readonly results?: readonly GenerateResult[]
  readonly refusal?: RequestRefusal
}

/** Why a request was refused, often as reported by a server behind the engine. */
export interface RequestRefusal {
  /** The HTTP status for the client. */
  readonly status: number
  readonly message: string
  /** The path of the wrong field; `null` if unknown. */
  readonly param: string | null
  readonly code: string | null
  /** The number of seconds after which the same request may succeed. */
  readonly retryAfterSeconds?: number
  /** Numbers that the server behind the engine has reported, such as `n_ctx` of llama-server. */
  readonly details?: Readonly<Record<string, number>>
}

/** An inference engine or server failed. */
export class InferenceError extends TuttiError {
  /** For a task with a list of prompts: one result per prompt, in order. */
  declare readonly results?: readonly GenerateResult[]
  /** The response for the client, if the request was refused because of its content. */
  declare readonly refusal?: RequestRefusal

  constructor(message: string, details: InferenceErrorDetails = {}) {
    super(message, details)
    if (details.results !== undefined) this.results = details.results
    if (details.refusal !== undefined) this.refusal = details.refusal
  }
}

/** The file that cannot be used, and the reason. */
export interface CheckpointErrorDetails extends ErrorDetails {
  readonly path?: string
  readonly errno?: string
  /** The id of the process that holds the lock. */
  readonly pid?: number
}

/** The checkpoint file cannot be written or read as requested. */
export class CheckpointError extends TuttiError {
  declare readonly path?: string
  declare readonly errno?: string
  declare readonly pid?: number

  constructor(message: string, details: CheckpointErrorDetails = {}) {
    super(message, details)
    if (details.path !== undefined) this.path = details.path
    if (details.errno !== undefined) this.errno = details.errno
    if (details.pid !== undefined) this.pid = details.pid
  }
}

registerErrorClasses({
  TuttiError,
  ValueError,
  StateError,
  TimeoutError,
  WorkerLostError,
  PoisonTaskError,
  BackendError,
  InferenceError,
  CheckpointError,
})

/** Returns the `code` of an error, such as `ENOSPC`; `unknown` if it has none. */
export function errnoOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error) {
    if (typeof error.code === 'string') return error.code
  }
  return 'unknown'
}

/** Returns the result of `read`; `undefined` if it throws, as getters and proxies may do. */
export function tryRead<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** Returns a message for any thrown value, even for `null` or an error with throwing getters. */
export function messageOf(thrown: unknown): string {
  try {
    const text = String(thrown instanceof Error ? thrown.message : thrown)
    // The fields of a plain object say more than "[object Object]".
    return text === '[object Object]' ? (JSON.stringify(thrown) ?? text) : text
  } catch {
    return 'an unprintable value was thrown'
  }
}
