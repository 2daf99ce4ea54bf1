import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { CheckpointLine } from '../../src/checkpoint/format.ts'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { attribute, rejection, turns, typesOf } from '../session/open-session.ts'
import { openEngine, settled } from './open-engine.ts'
import { verdictOf } from '../views/verdict.ts'

const one = (_given: unknown): number => 1

interface Span {
  readonly name: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly attributes: { readonly key: string; readonly value: { readonly stringValue?: string } }[]
  readonly status?: { readonly code?: number; readonly message?: string }
}

function spansOf(otlp: string): Span[] {
  const { resourceSpans } = JSON.parse(otlp) as {
    resourceSpans: { scopeSpans: { spans: Span[] }[] }[]
  }
  return resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans))
}

const text = (span: Span | undefined, name: string): string | undefined =>
  span?.attributes.find(({ key }) => key === name)?.value.stringValue

describe('a scope', () => {
  it('scope: events of its tasks have its id, its span is their parent', async () => {
    const { flow, backend, telemetry, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    const made = flow.scope('sweep-1', () => {
      const first = f(0)
      return { first, second: f(first) }
    })
    const outside = f(0)
    await settled()
    backend.start(made.first)
    for (const handle of [made.first, outside]) backend.complete(handle, 1)
    await settled()
    backend.complete(made.second, 2)
    const events = await eventsOf(made.second)
    const named = events.filter(({ event_type: type }) => type.startsWith('Task'))
    expect(named.map((event) => attribute(event, 'workflow_id'))).toEqual(
      named.map(() => 'sweep-1'),
    )
    expect(attribute((await eventsOf(outside))[0], 'workflow_id')).toBe(undefined)

    await flow.shutdown()
    const spans = spansOf(telemetry.exportAsOtlp())
    const session = spans.find(({ name }) => name === 'session')
    const workflow = spans.find(({ name }) => name === 'workflow')
    expect(workflow?.parentSpanId).toBe(session?.spanId)
    expect(text(workflow, 'workflow_id')).toBe('sweep-1')
    const parents = new Map(spans.map((span) => [text(span, 'task_id'), span]))
    for (const { uid } of Object.values(made)) {
      expect(parents.get(uid)?.parentSpanId).toBe(workflow?.spanId)
      expect(text(parents.get(uid), 'workflow_id')).toBe('sweep-1')
    }
    expect(parents.get(outside.uid)?.parentSpanId).toBe(session?.spanId)
    expect(text(parents.get(outside.uid), 'workflow_id')).toBe(undefined)
  })

  it('scope: ends with its callback and all its tasks; entering it again joins it', async () => {
    const { flow, backend, clock, events } = await openEngine()
    const f = flow.functionTask(one)
    const told = async (): Promise<unknown[]> =>
      (await events()).flatMap((event) =>
        event.event_type.startsWith('tutti.Workflow') ? [event.event_type.slice(6)] : [],
      )
    const { promise, resolve } = Promise.withResolvers<string>()
    let handle = f(0)
    const result = flow.scope('s', async () => {
      handle = f(1)
      return await promise
    })
    const inside = flow.scope('s', () => f(2))
    await settled()
    backend.complete(inside, 1)
    resolve('end')
    expect(await result).toBe('end')
    expect(await told()).toEqual(['WorkflowStarted'])
    await clock.advance(1500)
    backend.complete(handle, 1)
    expect(await told()).toEqual(['WorkflowStarted', 'WorkflowEnded'])
    const ended = (await events()).find(({ event_type: type }) => type === 'tutti.WorkflowEnded')
    expect(ended).toMatchObject({ workflow_id: 's', duration_seconds: 1.5, error_message: null })
  })

  it('scope: code that outlives it opens it again', async () => {
    const { flow, backend, events } = await openEngine()
    const f = flow.functionTask(one)
    const { promise, resolve } = Promise.withResolvers<void>()
    let late = f(0)
    flow.scope('s', () => void promise.then(() => (late = f(1))))
    resolve()
    await settled()
    backend.complete(late, 1)
    const told = (await events()).filter(({ event_type: type }) => type.startsWith('tutti.W'))
    const pair = ['tutti.WorkflowStarted', 'tutti.WorkflowEnded']
    expect(typesOf(told)).toEqual([...pair, ...pair])
  })

  it('scope: code that outlives it joins a scope that was opened again', async () => {
    const { flow, backend, events } = await openEngine()
    const f = flow.functionTask(one)
    const [timer, open] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    let late = f(0)
    flow.scope('x', () => void timer.promise.then(() => (late = f(1))))
    const anew = flow.scope('x', async () => await open.promise)
    timer.resolve()
    await settled()
    backend.complete(late, 1)
    open.resolve()
    await anew
    const told = (await events()).filter(({ event_type: type }) => type.startsWith('tutti.W'))
    const pair = ['tutti.WorkflowStarted', 'tutti.WorkflowEnded']
    expect(typesOf(told)).toEqual([...pair, ...pair])
  })

  it('scope: returns the handle that its callback returned, and fails with it', async () => {
    const { flow, backend, telemetry } = await openEngine()
    const f = flow.functionTask(one)
    let made = f(0)
    const handle = flow.scope('h', () => (made = f(1)))
    expect(handle).toBe(made)
    await settled()
    backend.fail(handle, new Error('boom'))
    await rejection(handle)
    await flow.shutdown()
    const spans = spansOf(telemetry.exportAsOtlp()).filter(({ name }) => name === 'workflow')
    expect(spans.map(({ status }) => status?.message)).toEqual([
      expect.stringContaining('boom') as unknown,
    ])
  })

  it('scope: lasts as long as a lazy thenable, whose work is inside', async () => {
    const { flow, backend, events, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    let inside = f(0)
    const end = Promise.withResolvers<string>()
    const lazy: PromiseLike<string> = {
      // oxlint-disable-next-line unicorn/no-thenable -- a foreign thenable is what is tested
      then(onFulfilled, onRejected) {
        inside = f(1)
        return end.promise.then(onFulfilled, onRejected)
      },
    }
    const result = flow.scope('l', () => lazy)
    await settled()
    backend.complete(inside, 1)
    await settled()
    expect(typesOf(await events())).not.toContain('tutti.WorkflowEnded')
    end.resolve('end')
    expect(await result).toBe('end')
    expect(typesOf(await events())).toContain('tutti.WorkflowEnded')
    expect(attribute((await eventsOf(inside))[0], 'workflow_id')).toBe('l')
  })

  it('scope: the failure of a callback is on its span and reaches the caller', async () => {
    const { flow, telemetry } = await openEngine()
    const thrown = (): never => flow.scope('a', () => fail('now'))
    expect(thrown).toThrow('now')
    expect((await rejection(flow.scope('b', async () => fail('later')))).message).toBe('later')
    await flow.shutdown()
    const spans = spansOf(telemetry.exportAsOtlp()).filter(({ name }) => name === 'workflow')
    expect(spans.map(({ status }) => status?.message)).toEqual(['now', 'later'])
  })

  it('scope: nests, and bodies inherit it', async () => {
    const { flow, telemetry, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    let inner = f(0)
    const block = flow.block(async () => void (inner = f(1)))
    await flow.scope('outer', async () => await flow.scope('inner', () => block()))
    expect(attribute((await eventsOf(inner))[0], 'workflow_id')).toBe('inner')
    await flow.shutdown()
    const spans = spansOf(telemetry.exportAsOtlp())
    const find = (id: string): Span | undefined =>
      spans.find((span) => span.name === 'workflow' && text(span, 'workflow_id') === id)
    expect(find('inner')?.parentSpanId).toBe(find('outer')?.spanId)
  })

  it('scope: concurrent scopes do not mix', async () => {
    const { flow, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    const run = (id: string) =>
      flow.scope(id, async () => {
        const early = f(id)
        await turns(2)
        return [early, f(id)]
      })
    const ids = Array.from({ length: 20 }, (_, at) => `w-${at}`)
    const made = await Promise.all(ids.map(run))
    for (const [at, handles] of made.entries()) {
      for (const handle of handles) {
        const [created] = await eventsOf(handle)
        expect(attribute(created, 'workflow_id')).toBe(`w-${at}`)
      }
    }
  })
})

describe('the events of a graph', () => {
  it('graph events: TaskCreated names dependencies, tutti.TaskResolved the wait', async () => {
    const { flow, backend, clock, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    const [a, b] = [f(0), f(0)]
    const c = f([a, { b }, a])
    await settled()
    await clock.advance(2000)
    backend.complete(a, 1)
    await clock.advance(1000)
    backend.complete(b, 1)
    await settled()
    const events = await eventsOf(c)
    expect(typesOf(events)).toEqual([
      'TaskCreated',
      'tutti.TaskResolved',
      'TaskSubmitted',
      'TaskQueued',
    ])
    expect(attribute(events[0], 'dependencies')).toEqual([a.uid, b.uid])
    expect(events[1]).toMatchObject({ dependencies: 2, wait_seconds: 3, task_id: c.uid })
    expect(events.slice(1).map((event) => attribute(event, 'dependencies'))).toEqual(
      Array(3).fill(undefined),
    )
    expect(attribute((await eventsOf(a))[0], 'dependencies')).toBe(undefined)
    expect((await eventsOf(a)).map(({ event_type: type }) => type)).not.toContain(
      'tutti.TaskResolved',
    )
  })

  it('graph events: a step of the wall clock is no waiting time; they are frozen', async () => {
    const { flow, backend, clock, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    const first = f(0)
    const second = f(first)
    await settled()
    await clock.advance(2000)
    clock.stepWall(3600)
    backend.complete(first, 1)
    await settled()
    const [created, resolved] = await eventsOf(second)
    expect(resolved).toMatchObject({ wait_seconds: 2 })
    expect(Object.isFrozen(attribute(created, 'dependencies'))).toBe(true)
  })

  it('graph events: the checkpoint verifies whatever the ends of the tasks', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-flow-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const { flow, backend, telemetry } = await openEngine({
      telemetry: { checkpointPath: folder },
    })
    const f = flow.functionTask(one, { cache: { key: 'k' } })
    const g = flow.functionTask(one)
    await flow.scope('s', async () => {
      const [a, b] = [f(0), g(0)]
      while (backend.jobs.length < 2) await turns(1)
      backend.complete(a, 1)
      backend.fail(b, new Error('no'))
      g(1).cancel()
      await Promise.allSettled([f(0), g([a, b]), flow.block(() => g(b))()])
    })
    void g(g(2))
    await flow.shutdown()
    const lines: CheckpointLine[] = []
    for await (const line of readCheckpoint(telemetry.checkpointFile ?? '')) lines.push(line)
    expect(verdictOf(lines)).toMatchObject({ tasks: 9, unfinished: 0, problems: [] })
  })
})

function fail(message: string): never {
  throw new Error(message)
}
