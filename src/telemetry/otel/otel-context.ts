/**
 * OpenTelemetry's active context, which holds the span that code runs in. Exposes the spans of
 * tasks and scopes to libraries and the application, and the application's spans to telemetry.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import {
  type Attributes,
  type AttributeValue,
  type Context,
  context,
  type ContextManager,
  createContextKey,
  type Exception,
  isSpanContextValid,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  type TimeInput,
  trace,
  TraceFlags,
} from '@opentelemetry/api'
import { type Clock } from '../../foundation/clock.ts'
import { messageOf, tryRead } from '../../foundation/errors.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets, maskSecretsIn } from '../../foundation/secrets.ts'
import { currentTask } from '../../foundation/task-context.ts'
import type { ActiveSpans, ForeignSpan, LiveSpan } from '../spans/live-span.ts'
import type { SpanIds } from '../spans/span-mirror.ts'
import { toHrTime, toOtelAttributes } from './otel.ts'

/** Errors in the application's OpenTelemetry components may lose spans, but never tasks. */
export class OtelActiveSpans implements ActiveSpans {
  readonly #clock: Clock
  readonly #log: Log
  #hasWarned = false

  constructor(clock: Clock, log: Log) {
    this.#clock = clock
    this.#log = log
  }

  /** The ids of the calling code's active span, regardless of what opened it. */
  activeIds(): SpanIds | null {
    return this.#guard(() => {
      const active = trace.getSpanContext(context.active())
      return active === undefined || !isSpanContextValid(active) ? null : active
    })
  }

  find(owner: object): LiveSpan | ForeignSpan | null {
    return this.#guard(() => {
      let span = trace.getSpan(context.active())
      while (span instanceof EnteredSpan && span.live.owner !== owner) span = span.outer
      if (span === undefined) return null
      if (!(span instanceof EnteredSpan)) return this.#toForeign(span)
      return span.task === currentTask()?.uid ? span.live : null
    })
  }

  runTask<T>(live: LiveSpan, callback: () => T): T {
    const span = new EnteredSpan(live, undefined, this.#clock)
    return this.#runIn(trace.setSpan(ROOT_CONTEXT, span), callback)
  }

  runScope<T>(live: LiveSpan, callback: () => T): T {
    const entered = this.#guard(() => {
      const around = context.active()
      return trace.setSpan(around, new EnteredSpan(live, trace.getSpan(around), this.#clock))
    })
    return entered === null ? this.runTask(live, callback) : this.#runIn(entered, callback)
  }

  /** Runs the callback exactly once, even if the context manager misbehaves. */
  #runIn<T>(entered: Context, callback: () => T): T {
    const call = { hasBegun: false, hasThrown: false, outcome: undefined as unknown }
    const run = (): void => {
      if (call.hasBegun) return
      call.hasBegun = true
      try {
        call.outcome = callback()
      } catch (error) {
        Object.assign(call, { hasThrown: true, outcome: error })
      }
    }
    this.#guard(() => context.with(entered, run))
    run()
    if (call.hasThrown) throw call.outcome
    return call.outcome as T
  }

  #toForeign(span: Span): ForeignSpan | null {
    const ids = span.spanContext()
    if (!isSpanContextValid(ids)) return null
    return {
      owner: null,
      traceId: ids.traceId,
      spanId: ids.spanId,
      annotate: ({ name, attributes, time }) =>
        void this.#guard(() => span.addEvent(name, toOtelAttributes(attributes), toHrTime(time))),
    }
  }

  #guard<T>(read: () => T): T | null {
    try {
      return read()
    } catch (error) {
      if (!this.#hasWarned) {
        const text = "OpenTelemetry's context manager or its active span failed"
        this.#log.warn('OtelContextFailed', `${text}; it is ignored: ${messageOf(error)}`)
      }
      this.#hasWarned = true
      return null
    }
  }
}

/**
 * Exposes the span of a task or scope through OpenTelemetry's interface. Only telemetry sets its
 * name, status and end time.
 */
class EnteredSpan implements Span {
  readonly live: LiveSpan
  readonly outer: Span | undefined
  /**
   * The uid of the task that entered this span. A task that starts inside the span does not see the
   * span.
   */
  readonly task = currentTask()?.uid
  readonly #clock: Clock

  constructor(live: LiveSpan, outer: Span | undefined, clock: Clock) {
    this.live = live
    this.outer = outer
    this.#clock = clock
  }

  spanContext(): SpanContext {
    const { traceId, spanId } = this.live
    return { traceId, spanId, traceFlags: TraceFlags.SAMPLED }
  }

  setAttribute(key: string, value: AttributeValue): this {
    return this.setAttributes({ [key]: value })
  }

  setAttributes(attributes: Attributes): this {
    this.live.setAttributes(attributes)
    return this
  }

  addEvent(name: string, second?: Attributes | TimeInput, third?: TimeInput): this {
    const attributes = isTime(second) ? {} : (second ?? {})
    const time = toSeconds(isTime(second) ? second : third) ?? this.#clock.now()
    this.live.annotate({ name: maskSecrets(name), time, attributes: toTextAttributes(attributes) })
    return this
  }

  recordException(exception: Exception, time?: TimeInput): void {
    const { name, stack } = typeof exception === 'string' ? {} : exception
    const attributes: Attributes = { 'exception.message': messageOf(exception) }
    if (name !== undefined) attributes['exception.type'] = name
    if (stack !== undefined) attributes['exception.stacktrace'] = stack
    this.addEvent('exception', attributes, time)
  }

  addLink(): this {
    return this
  }

  addLinks(): this {
    return this
  }

  setStatus(): this {
    return this
  }

  updateName(): this {
    return this
  }

  end(): void {}

  isRecording(): boolean {
    return true
  }
}

const isTime = (value: Attributes | TimeInput | undefined): value is TimeInput =>
  typeof value === 'number' || value instanceof Date || Array.isArray(value)

function toSeconds(time: TimeInput | undefined): number | null {
  if (time === undefined) return null
  if (Array.isArray(time)) return time[0] + time[1] / 1e9
  return (time instanceof Date ? time.getTime() : time) / 1000
}

function toTextAttributes(attributes: Attributes): JsonObject {
  const texts = Object.entries(toJsonObject(attributes)).map(([name, value]) => [
    name,
    typeof value === 'string' ? value : JSON.stringify(value),
  ])
  return maskSecretsIn(toJsonObject(Object.fromEntries(texts) as object))
}

class LocalContextManager implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>()

  active(): Context {
    return this.#storage.getStore() ?? ROOT_CONTEXT
  }

  with<A extends unknown[], F extends (...args: A) => ReturnType<F>>(
    active: Context,
    callback: F,
    thisArg?: ThisParameterType<F>,
    ...args: A
  ): ReturnType<F> {
    return this.#storage.run(active, () => callback.call(thisArg, ...args))
  }

  bind<T>(active: Context, target: T): T {
    if (typeof target !== 'function') return target
    const storage = this.#storage
    const bound = function (this: unknown, ...args: unknown[]): unknown {
      return storage.run(active, () => Reflect.apply(target, this, args) as unknown)
    }
    return bound as T
  }

  enable(): this {
    return this
  }

  disable(): this {
    return this
  }
}

const probeKey = createContextKey('tutti: is there a context manager?')
let userCount = 0
const localManager = new LocalContextManager()

/**
 * Registers tutti's context manager, unless the application's SDK has registered one. Without a
 * context manager, no span is ever active. Unregisters it when all returned functions have been
 * called.
 */
export function acquireContextManager(): () => void {
  if (userCount === 0 && isRegistered(context)) return () => {}
  if (userCount++ === 0) context.setGlobalContextManager(localManager)
  let isHeld = true
  return () => {
    if (!isHeld) return
    isHeld = false
    // The application may have replaced the context manager in the meantime.
    if (--userCount === 0 && isRegistered(localManager)) context.disable()
  }
}

/** Whether a context set by this manager is globally active; `false` if the manager throws. */
function isRegistered(manager: Pick<ContextManager, 'with'>): boolean {
  const probing = ROOT_CONTEXT.setValue(probeKey, true)
  const isActive = (): boolean => context.active().getValue(probeKey) === true
  return tryRead(() => manager.with(probing, isActive)) === true
}
