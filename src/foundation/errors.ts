/** The library's errors: one base class, a stable `code`, a cause, and a hint where one helps. */

/** Identifies the library's errors across copies of the package, where `instanceof` fails. */
const lineage = Symbol.for('tutti.error.lineage')

/** The details that every error of tutti may have. */
export interface ErrorDetails {
  /** Stable and more precise than the class; defaults to the class name. */
  readonly code?: string
  readonly cause?: unknown
  /** What the reader can do about the error. */
  readonly hint?: string
}

/**
 * Creates an error that is reported and not thrown. Its stack would only show library internals,
 * and V8 keeps everything that the stack refers to alive as long as the error.
 */
export function withoutStack<T extends Error>(create: () => T): T {
  const { stackTraceLimit } = Error
  // An assignment would throw if the property is frozen.
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
  readonly [lineage]: readonly string[]

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, 'cause' in details ? { cause: details.cause } : undefined)
    const names = lineageOf(new.target)
    this.name = names[0] ?? 'TuttiError'
    this.code = details.code ?? this.name
    if (details.hint !== undefined) this.hint = details.hint
    this[lineage] = names
    Object.defineProperty(this, lineage, { enumerable: false })
  }

  /** Like `instanceof`, but true across several copies of the package. */
  static isInstance<T extends TuttiError>(
    this: abstract new (...args: never[]) => T,
    value: unknown,
  ): value is T {
    if (typeof value !== 'object' || value === null || !(lineage in value)) return false
    const names = value[lineage]
    return Array.isArray(names) && names.includes(this.name)
  }
}

const deepestClass = 64
const lineages = new WeakMap<object, readonly string[]>()

function lineageOf(errorClass: { readonly name: string }): readonly string[] {
  const known = lineages.get(errorClass)
  if (known !== undefined) return known
  const names: string[] = []
  let current: { readonly name: string } | null = errorClass
  while (current !== null && current !== Error) {
    names.push(current.name)
    current = Object.getPrototypeOf(current) as { readonly name: string } | null
  }
  lineages.set(errorClass, names)
  return names
}

/** The names of the class and superclasses of an error of this library, from any copy of it. */
export function lineageIn(error: object): readonly string[] | null {
  const names: unknown = lineage in error ? error[lineage] : null
  // An object of user code may claim to have billions of names.
  const isList = Array.isArray(names) && names.length <= deepestClass
  return isList && names.every((one) => typeof one === 'string') ? names : null
}

/**
 * Restores an error that was sent as data, without calling its constructor. The caller adds its
 * fields and its stack.
 */
export function reviveError(
  errorClass: { readonly prototype: TuttiError },
  names: readonly string[],
  message: string,
): TuttiError {
  const error = withoutStack(() => new Error(message)) as Partial<TuttiError>
  Object.setPrototypeOf(error, errorClass.prototype)
  Object.defineProperty(error, lineage, { value: names })
  return error as TuttiError
}

/** The details of a `ValueError`. */
export interface ValueErrorDetails extends ErrorDetails {
  /** The path of the wrong value, such as `tasks[417].backend`. */
  readonly field?: string
  readonly expected?: string
  readonly got?: unknown
}

/** Invalid input: `field` is its path, `expected` describes a valid value, `got` is the value. */
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

/** A wait exceeded its limit. The awaited operation continues, unless this is a task's cause. */
export class TimeoutError extends TuttiError {}

/** A worker or node was lost while it ran the task. */
export class WorkerLostError extends TuttiError {}

/** Several workers in a row were lost while they ran the same task. */
export class PoisonTaskError extends WorkerLostError {}

/** An execution backend failed as a whole. */
export class BackendError extends TuttiError {}

/** The result of one prompt, with the field names of the HTTP API: its text, or an error. */
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

/** The details of an `InferenceError`. */
export interface InferenceErrorDetails extends ErrorDetails {
  readonly results?: readonly GenerateResult[]
  readonly refusal?: RequestRefusal
}

/** What is wrong with a request, often as reported by a server behind the engine. */
export interface RequestRefusal {
  /** The HTTP status that a client gets. */
  readonly status: number
  readonly message: string
  /** The path of the wrong field; `null` if it is not known. */
  readonly param: string | null
  readonly code: string | null
  /** The number of seconds after which the same request may succeed. */
  readonly retryAfterSeconds?: number
  /** Numbers that the server behind the engine adds, such as `n_ctx` of llama-server. */
  readonly details?: Readonly<Record<string, number>>
}

/** An inference engine or server failed. */
export class InferenceError extends TuttiError {
  /** For a task with a list of prompts: one result per prompt, in order. */
  declare readonly results?: readonly GenerateResult[]
  /** For a request that was refused because of its content: what its client is told. */
  declare readonly refusal?: RequestRefusal

  constructor(message: string, details: InferenceErrorDetails = {}) {
    super(message, details)
    if (details.results !== undefined) this.results = details.results
    if (details.refusal !== undefined) this.refusal = details.refusal
  }
}

/** The details of a `CheckpointError`. */
export interface CheckpointErrorDetails extends ErrorDetails {
  readonly path?: string
  readonly errno?: string
  /** The process that holds the lock. */
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

/** The system's name of an error, such as `ENOSPC`, or `unknown`. */
export function errnoOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error) {
    if (typeof error.code === 'string') return error.code
  }
  return 'unknown'
}

/** A message for any thrown value, also `null` and errors with throwing getters. */
export function messageOf(thrown: unknown): string {
  try {
    const text = String(thrown instanceof Error ? thrown.message : thrown)
    // A plain object: its fields say what happened.
    return text === '[object Object]' ? (JSON.stringify(thrown) ?? text) : text
  } catch {
    return 'an unprintable value was thrown'
  }
}
