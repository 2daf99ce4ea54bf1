import { AsyncLocalStorage } from 'node:async_hooks'
import {
  type Context,
  context,
  type ContextManager,
  ROOT_CONTEXT,
  type Span,
  trace,
} from '@opentelemetry/api'
import { type ReadableSpan, type SpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import type { SpanLine } from '../../src/checkpoint/format.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventsIn, openTelemetry, spansIn, tempFolder } from './open-telemetry.ts'

/** The objects that the SDK of an application registers. */
class ApplicationContext implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>()
  active = (): Context => this.#storage.getStore() ?? ROOT_CONTEXT
  with: ContextManager['with'] = (active, callback, thisArg, ...args) =>
    this.#storage.run(active, () => callback.call(thisArg as never, ...args))
  bind = <T>(_: Context, target: T): T => target
  enable = (): this => this
  disable = (): this => this
}

class Recording implements SpanProcessor {
  readonly ended: ReadableSpan[] = []
  onStart(): void {}
  onEnd(span: ReadableSpan): void {
    this.ended.push(span)
  }
  async forceFlush(): Promise<void> {}
  async shutdown(): Promise<void> {}
}

const application = new Recording()
const tracer = new TracerProvider({ spanProcessors: [application] }).getTracer('application')

/** Runs the callback inside a span of the application. */
async function inSpan<T>(name: string, callback: (span: Span) => Promise<T>): Promise<T> {
  const span = tracer.startSpan(name, {}, context.active())
  try {
    return await context.with(trace.setSpan(context.active(), span), () => callback(span))
  } finally {
    span.end()
  }
}

const idsOf = (span: Span | undefined) => {
  const { traceId, spanId } = span?.spanContext() ?? {}
  return { trace_id: traceId, span_id: spanId }
}
const idsIn = (line: SpanLine | undefined) => ({
  trace_id: line?.trace_id,
  span_id: line?.span_id,
})

const Mark = defineEvent('context.Mark', { level: 'int' })
const mark = () => makeEvent(Mark, { session_id: 's1', backend: 'app', level: 3 })

/** A real session whose closures run on the event loop. */
async function openSession(options: object = {}) {
  const folder = tempFolder()
  const session = new Session([await ConcurrentBackend.create({ name: 'local' })])
  const telemetry = await session.startTelemetry({ checkpointPath: folder, ...options })
  onTestFinished(() => session.close())
  const spanNamed = (name: string) => spansIn(folder).find((span) => span.name === name)
  return { session, telemetry, folder, spanNamed }
}

describe.each([
  ['with a span processor', true],
  ['without span processors', false],
])('the context of an application, %s', (_, hasProcessor) => {
  beforeAll(() => void context.setGlobalContextManager(new ApplicationContext()))
  afterAll(() => context.disable())

  const openManager = (options: object = {}) => {
    const processor = new Recording()
    const spanProcessors = hasProcessor ? [processor] : []
    const open = openTelemetry({ spanProcessors, ...options })
    const spanNamed = (name: string) => spansIn(open.folder).find((span) => span.name === name)
    const sdkSpan = (name: string) => processor.ended.find((span) => span.name === name)
    return { ...open, spanNamed, sdkSpan }
  }

  it('the session is a root with a link to the active span', async () => {
    const { telemetry, spanNamed, sdkSpan, folder } = openManager()
    const app = await inSpan('request', async (span) => {
      await telemetry.start()
      return idsOf(span)
    })
    await telemetry.stop()
    const session = spanNamed('session')
    expect(session).toMatchObject({ parent_span_id: null, links: [app] })
    expect(session?.trace_id).not.toBe(app.trace_id)
    expect(telemetry.exportAsOtlp()).toMatch(new RegExp(`"links":\\[\\{[^}]*${app.trace_id}`))
    expect(eventsIn(folder).every(({ trace_id: id }) => id === session?.trace_id)).toBe(true)
    expect(sdkSpan('session')?.parentSpanContext).toBeUndefined()
    const linked = sdkSpan('session')?.links.map((link) => link.context.traceId)
    expect(linked).toEqual(hasProcessor ? [app.trace_id] : undefined)
  })

  it('the session is a child of the active span with continueTrace', async () => {
    const { telemetry, spanNamed, sdkSpan } = openManager({ continueTrace: true })
    const app = await inSpan('request', async (span) => {
      await telemetry.start()
      return idsOf(span)
    })
    telemetry.spanScope('step', () => {})
    await telemetry.stop()
    const session = spanNamed('session')
    expect(session).toMatchObject({ trace_id: app.trace_id, parent_span_id: app.span_id })
    expect(session).not.toHaveProperty('links')
    expect(spanNamed('step')).toMatchObject({
      trace_id: app.trace_id,
      parent_span_id: session?.span_id,
    })
    const sdkIds = [
      sdkSpan('session')?.spanContext().traceId,
      sdkSpan('session')?.parentSpanContext?.spanId,
    ]
    expect(sdkIds).toEqual(hasProcessor ? [app.trace_id, app.span_id] : [undefined, undefined])
  })

  it('a session without an active span has neither parent nor link', async () => {
    const { telemetry, spanNamed } = openManager({ continueTrace: true })
    await telemetry.start()
    await telemetry.stop()
    expect(spanNamed('session')?.parent_span_id).toBe(null)
    expect(spanNamed('session')).not.toHaveProperty('links')
  })

  it('a scope inside a span of the application belongs to its trace', async () => {
    const { telemetry, spanNamed, sdkSpan, folder } = openManager()
    await telemetry.start()
    const app = await inSpan('request', async (span) => {
      telemetry.spanScope('outer', () => {
        expect(idsOf(trace.getActiveSpan())).not.toEqual(idsOf(span))
        telemetry.spanScope('inner', () => telemetry.emit(mark()))
      })
      telemetry.emit(mark())
      telemetry.annotateCurrentSpan(mark())
      return idsOf(span)
    })
    await telemetry.stop()
    const [outer, inner] = [spanNamed('outer'), spanNamed('inner')]
    expect(outer).toMatchObject({ trace_id: app.trace_id, parent_span_id: app.span_id })
    expect(inner).toMatchObject({ trace_id: app.trace_id, parent_span_id: outer?.span_id })
    const marks = eventsIn(folder).filter(({ name }) => name === 'context.Mark')
    expect(marks).toMatchObject([idsIn(inner), app])
    const request = application.ended.findLast(({ name }) => name === 'request')
    expect(request?.events).toMatchObject([{ name: 'context.Mark', attributes: { level: '3' } }])
    const sdkIds = [
      sdkSpan('inner')?.spanContext().traceId,
      sdkSpan('inner')?.parentSpanContext?.spanId,
    ]
    expect(sdkIds).toEqual(hasProcessor ? [app.trace_id, outer?.span_id] : [undefined, undefined])
  })

  it('the active span in a closure is that of its task, not of whoever submitted it', async () => {
    const processor = new Recording()
    const spanProcessors = hasProcessor ? [processor] : []
    const { session, telemetry, spanNamed } = await openSession({ spanProcessors })
    const body = async () => {
      const before = idsOf(trace.getActiveSpan())
      await new Promise((resolve) => setImmediate(resolve))
      telemetry.annotateCurrentSpan(mark())
      trace.getActiveSpan()?.setAttribute('found', 7)
      const nested = await inSpan('of a library', async (span) => {
        telemetry.spanScope('below', () => {})
        return idsOf(span)
      })
      telemetry.spanScope('beside', () => {})
      return { before, after: idsOf(trace.getActiveSpan()), nested }
    }
    const seen = await inSpan('request', async () => {
      const task = new ComputeTask({ function: body })
      await session.submitTasks([task])
      return task
    })
    await session.close()
    const task = spanNamed('task')
    expect([seen.before, seen.after]).toEqual([idsIn(task), idsIn(task)])
    expect(task).toMatchObject({ attributes: { found: 7, status: 'completed' } })
    expect(task?.events.map(({ name }) => name)).toContain('context.Mark')
    expect(spanNamed('beside')?.parent_span_id).toBe(task?.span_id)
    expect(spanNamed('below')?.parent_span_id).toBe(seen.nested.span_id)
    const library = application.ended.findLast(({ name }) => name === 'of a library')
    expect(library?.parentSpanContext?.spanId).toBe(task?.span_id)
    expect(library?.spanContext().traceId).toBe(task?.trace_id)
    const sdkTask = processor.ended.find(({ name }) => name === 'task')
    expect(sdkTask?.attributes['found']).toBe(hasProcessor ? 7 : undefined)
  })

  it('attributes set on the active span of a scope are in its span', async () => {
    const { telemetry, spanNamed, sdkSpan } = openManager()
    await telemetry.start()
    telemetry.spanScope('scope', { given: 1 }, () => {
      const span = trace.getActiveSpan()
      expect(span?.isRecording()).toBe(true)
      span?.setAttributes({ more: 'x', list: ['a'] }).addEvent('event', { n: 1 }, 1_700_000_000_500)
      span?.recordException(new RangeError('seen'), [1_700_000_001, 0])
      // The scope ends its span itself.
      span?.updateName('other').setStatus({ code: 2 }).addLink({ context: span.spanContext() })
      span?.end()
      span?.addEvent('last', [1_700_000_002, 500_000_000])
    })
    await telemetry.stop()
    expect(spanNamed('scope')).toMatchObject({
      status_code: 'UNSET',
      attributes: { given: 1, more: 'x', list: ['a'] },
      events: [
        { name: 'event', time: 1_700_000_000.5, attributes: { n: '1' } },
        {
          name: 'exception',
          time: 1_700_000_001,
          attributes: { 'exception.type': 'RangeError', 'exception.message': 'seen' },
        },
        { name: 'last', time: 1_700_000_002.5 },
      ],
    })
    const sdkEvents = sdkSpan('scope')?.events.map(({ name }) => name)
    expect(sdkEvents).toEqual(hasProcessor ? ['event', 'exception', 'last'] : undefined)
    expect(sdkSpan('scope')?.attributes['more']).toBe(hasProcessor ? 'x' : undefined)
  })

  it('events are dispatched in the context of start(), not of the emitter', async () => {
    const { telemetry } = openManager()
    const seen: unknown[] = []
    telemetry.subscribe(async ({ event_type: type }) => {
      if (type !== 'context.Mark') return
      seen.push(idsOf(trace.getActiveSpan()))
      await Promise.resolve()
      seen.push(idsOf(trace.getActiveSpan()))
    })
    const app = await inSpan('around start', async (span) => {
      await telemetry.start()
      return idsOf(span)
    })
    await inSpan('around emit', async () => telemetry.emit(mark()))
    telemetry.spanScope('scope', () => telemetry.emit(mark()))
    await telemetry.stop()
    expect(seen).toEqual([app, app, app, app])
  })
})

describe('an application without a context', () => {
  const isRegistered = (): boolean =>
    context.with(trace.setSpan(ROOT_CONTEXT, tracer.startSpan('probe')), () =>
      Boolean(trace.getActiveSpan()),
    )

  it('an application without a context has active spans only while telemetry runs', async () => {
    expect(isRegistered()).toBe(false)
    const [one, other] = [openTelemetry(), await openSession()]
    await one.telemetry.start()
    const ids = await one.telemetry.spanScope('scope', async () => {
      await new Promise((resolve) => setImmediate(resolve))
      return idsOf(trace.getActiveSpan())
    })
    const task = new ComputeTask({ function: () => idsOf(trace.getActiveSpan()) })
    await other.session.submitTasks([task])
    const inTask = await task
    await one.telemetry.stop()
    expect(isRegistered()).toBe(true)
    await other.session.close()
    expect(isRegistered()).toBe(false)
    expect(ids).toEqual(idsIn(spansIn(one.folder).find(({ name }) => name === 'scope')))
    expect(inTask).toEqual(idsIn(other.spanNamed('task')))
  })

  it('an application keeps a context that it registers while telemetry runs', async () => {
    const { telemetry } = openTelemetry()
    await telemetry.start()
    context.disable()
    const manager = new ApplicationContext()
    context.setGlobalContextManager(manager)
    onTestFinished(() => context.disable())
    await telemetry.stop()
    expect(isRegistered()).toBe(true)
  })

  it('an application has nothing registered when telemetry cannot start', async () => {
    const { telemetry } = openTelemetry({ checkpointPath: '/dev/null/impossible' })
    await expect(telemetry.start()).rejects.toThrow()
    expect(isRegistered()).toBe(false)
  })
})

describe('a context manager of the application that is wrong', () => {
  const brokenSpan = { spanContext: () => failing('span') } as unknown as Span
  const failing = (what: string): never => {
    throw new Error(`broken ${what}`)
  }
  const call: ContextManager['with'] = (_, callback, thisArg, ...args) =>
    callback.call(thisArg as never, ...args)
  const wrong: Record<string, Partial<ContextManager>> = {
    'active throws': { active: () => failing('active') },
    'active gives null': { active: () => null as unknown as Context },
    'its span throws': { active: () => trace.setSpan(ROOT_CONTEXT, brokenSpan) },
    'with throws before the code': { with: () => failing('with') },
    'with throws after the code': {
      with: (...args) => {
        call(...args)
        return failing('with')
      },
    },
    'with runs nothing': { with: () => undefined as never },
    'with runs twice': {
      with: (...args) => {
        call(...args)
        return call(...args)
      },
    },
  }

  it.each(Object.keys(wrong))(
    'a wrong context manager breaks neither telemetry nor tasks: %s',
    async (name) => {
      const manager = new ApplicationContext()
      context.disable()
      onTestFinished(() => context.disable())
      const defaults = { active: () => ROOT_CONTEXT, with: call }
      context.setGlobalContextManager(Object.assign(manager, defaults, wrong[name]))
      const warnings: string[] = []
      const log = { warn: (code: string) => void warnings.push(code) }
      const session = new Session([await ConcurrentBackend.create({ workers: 1 })], { log })
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry({ continueTrace: true })
      let calls = 0
      const good = new ComputeTask({ function: () => ++calls })
      const bad = new ComputeTask({ function: () => failing('closure') })
      await session.submitTasks([good, bad])
      expect(await good).toBe(1)
      await expect(bad).rejects.toThrow('broken closure')
      expect(await telemetry.spanScope('scope', async () => ++calls)).toBe(2)
      expect(() => telemetry.spanScope('scope', () => failing('scope'))).toThrow('broken scope')
      await session.close()
      expect(calls).toBe(2)
      expect(telemetry.summary().tasks).toMatchObject({ completed: 1, failed: 1 })
      const isSilent = name === 'with runs nothing' || name === 'with runs twice'
      expect(warnings).toEqual(isSilent ? [] : ['OtelContextFailed'])
    },
  )
})
