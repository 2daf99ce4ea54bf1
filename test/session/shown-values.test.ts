import { afterEach, describe, expect, it, vi } from 'vitest'
import { toEventNotice } from '../../src/backends/backend.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { TaskMoved, WorkerLost } from '../../src/events/library-events.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import type { WorkSpan } from '../../src/events/sink.ts'
import { registerSecret } from '../../src/foundation/secrets.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { linesIn, tempFolder } from '../telemetry/open-telemetry.ts'
import { openEngine } from '../workflow/open-engine.ts'
import { openSession, quick } from './open-session.ts'

/** The paths of parts that are not frozen. */
function unfrozenIn(value: unknown, path: string): string[] {
  if (typeof value !== 'object' || value === null) return []
  const parts = Object.entries(value).flatMap(([key, part]) => unfrozenIn(part, `${path}.${key}`))
  return Object.isFrozen(value) ? parts : [path, ...parts]
}

const unfrozen = (events: readonly BaseEvent[]): string[] =>
  events.flatMap((event) => unfrozenIn(event, event.event_type))

describe('row 36: events of a run', () => {
  it('row 36: all are frozen deeply, and objects of the backend stay as they are', async () => {
    const { session, backend, all } = await openSession()
    const labels = { zone: 'a' }
    const capacity = { cores: 4, gpus: 0, memoryMb: 1, workers: 2, labels, version: '1' }
    backend.notice({ kind: 'node-joined', node: { nodeId: 'n1', capacity } })
    const tasks = ['task-1']
    backend.notice({ kind: 'node-left', nodeId: 'n1', lost: { reason: 'gone', tasks } })
    const attributes = { path: ['a', { b: 1 }] }
    const lost = { worker_id: 'w', tasks, reason: 'died' }
    backend.notice(toEventNotice(WorkerLost, lost, { nodeId: 'n1', attributes }))
    backend.notice(toEventNotice(TaskMoved, { count: 1, tasks }, { nodeId: 'n1' }))
    const resources = { labels: { zone: 'a' } }
    const failed = quick({ attributes: { list: [{ deep: true }] }, resources })
    const program = new ComputeTask({ executable: 'mpi', resources: { ranks: 2 } })
    const prompt = new AITask({ prompt: 'Why?' })
    await session.submitTasks([failed, program, prompt])
    const nodes = ['n1', 'n2']
    const started = { kind: 'start', workerId: 'w', nodeId: 'n1', nodes, ranks: 2 } as const
    backend.report(backend.jobOf(program), started)
    backend.complete(program, { stdout: '', stderr: '', exitCode: 0 })
    const facts = { finishReasons: ['stop' as const] }
    backend.report(backend.jobOf(prompt), { kind: 'complete', value: 'so', facts })
    backend.start(failed)
    backend.fail(failed, new AggregateError([new Error('a'), 7], 'no', { cause: new Error('b') }))
    await session.close()
    expect(all.map(({ event_type: type }) => type)).toEqual(
      expect.arrayContaining(['tutti.NodeJoined', 'tutti.NodeLost', 'tutti.TaskMoved']),
    )
    expect(unfrozen(all)).toEqual([])
    for (const given of [labels, tasks, attributes.path, nodes, facts.finishReasons]) {
      expect(Object.isFrozen(given)).toBe(false)
    }
  })

  it('row 36: events of a workflow are frozen deeply', async () => {
    const { flow, events } = await openEngine()
    const addOne = flow.functionTask((number: number) => number + 1)
    void flow.scope('w', () => addOne(addOne(1)))
    await flow.shutdown()
    expect((await events()).map(({ attributes }) => attributes['dependencies'])).toContainEqual([
      expect.any(String),
    ])
    expect(unfrozen(await events())).toEqual([])
  })
})

describe('secrets', () => {
  afterEach(() => vi.unstubAllEnvs())
  const Note = defineEvent('shown.Note', { text: 'str', parts: 'any' })

  it('secrets: masked in every text of events, spans and metrics', async () => {
    const secret = 'canary-secret-0451'
    registerSecret(secret)
    const folder = tempFolder()
    const { session, backend, telemetry, all } = await openSession({
      telemetry: { checkpointPath: folder },
    })
    const unsubscribe = telemetry.subscribe(() => {
      throw new Error(`cannot reach ${secret}`)
    })
    const Odd = { [secret]: class extends Error {} }[secret] ?? Error
    const resources = { labels: { zone: secret } }
    const failed = new ComputeTask({ executable: `/opt/${secret}/run`, resources })
    const own = quick({ attributes: { note: secret } })
    await session.submitTasks([failed, own])
    backend.fail(failed, new Odd('no'))
    backend.complete(own)
    const common = { session_id: 's1', backend: 'app' }
    const attributes = { note: secret }
    telemetry.emit(makeEvent(Note, { ...common, text: secret, parts: [{ secret }], attributes }))
    telemetry.spanScope(`load ${secret}`, { secret }, () => {})
    const span: WorkSpan = {
      spanId: '0123456789abcdef',
      name: `call ${secret}`,
      taskId: null,
      startTime: 1,
      endTime: 2,
      attributes,
      error: `401 for ${secret}`,
      links: [],
    }
    backend.notice({ kind: 'span', span })
    const instrument = { name: 'm', unit: 's', description: '', boundaries: [1] }
    backend.notice({
      kind: 'measurement',
      measurement: { instrument, value: 1, labels: { secret } },
    })
    await telemetry.flush()
    const endpoint = await telemetry.servePrometheus({ port: 0, taskLabels: true })
    const metrics = await (await fetch(endpoint.url)).text()
    await endpoint.close()
    unsubscribe()
    await session.close()
    expect(all.map(({ event_type: type }) => type)).toContain('tutti.SubscriberError')
    expect(metrics).toContain('executable="/opt/[masked]/run"')
    const shown = [all, linesIn(folder), telemetry.exportAsOtlp(), telemetry.summary(), metrics]
    expect(JSON.stringify(shown)).not.toContain(secret)
  })

  it('secrets: masked in the failure of a workflow', async () => {
    const secret = 'canary-secret-0452'
    registerSecret(secret)
    const { flow, events } = await openEngine()
    const failing = (): never => {
      throw new Error(`401 for ${secret}`)
    }
    expect(() => flow.scope('w', failing)).toThrow(secret)
    await flow.shutdown()
    const ended = (await events()).find(({ event_type: type }) => type === 'tutti.WorkflowEnded')
    expect(ended).toMatchObject({ error_message: '401 for [masked]' })
  })

  it('secrets: masked when they come into the environment after the start', async () => {
    const { session, backend, telemetry, all } = await openSession()
    await session.submitTasks([quick({ attributes: { note: 'before' } })])
    vi.stubEnv('LATE_TOKEN', 'late-canary-value')
    const task = quick({ attributes: { note: 'late-canary-value' } })
    await session.submitTasks([task])
    vi.stubEnv('LATE_TOKEN', 'newer-canary-value')
    backend.fail(task, new Error('401 for newer-canary-value'))
    await telemetry.flush()
    expect(JSON.stringify(all)).toContain('401 for [masked]')
    expect(JSON.stringify(all)).not.toContain('canary-value')
  })
})
