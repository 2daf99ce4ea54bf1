import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type Backend,
  type Notice,
  type TaskReport,
  toEventNotice,
} from '../../src/backends/backend.ts'
import { TaskCompleted } from '../../src/events/vocabulary.ts'
import { BackendError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { quick } from '../session/open-session.ts'

function open(backend: FakeBackend = new FakeBackend({ name: 'fake' })) {
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const session = new Session([backend], { log })
  onTestFinished(() => session.close())
  return { backend, session, warnings }
}

/** Fails in one of the calls that must not throw. */
class ThrowingBackend extends FakeBackend {
  readonly #call: 'submit' | 'cancel'

  constructor(call: 'submit' | 'cancel') {
    super({ name: 'throwing' })
    this.#call = call
  }

  override connect(...args: Parameters<FakeBackend['connect']>) {
    const throwing = (): never => {
      throw new Error('broken')
    }
    return { ...super.connect(...args), [this.#call]: throwing }
  }
}

describe('a backend that does not keep the promises of its port', () => {
  it.each([undefined, null, {}, { kind: 'done' }, 7])(
    'report %o is ignored with a warning, and the task can still end',
    async (report) => {
      const { backend, session, warnings } = open()
      const task = quick()
      await session.submitTasks([task])
      backend.report(backend.jobOf(task), report as unknown as TaskReport)
      expect([task.state, warnings.length]).toEqual(['QUEUED', 1])
      expect(warnings[0]).toContain('BackendMisused: a report of backend "fake" was ignored')
      backend.complete(task)
      expect(task.state).toBe('DONE')
    },
  )

  it.each([
    undefined,
    { kind: 'from-the-future' },
    { kind: 'sample', nodeId: 'n1' },
    { kind: 'node-joined' },
    toEventNotice(TaskCompleted, { duration_seconds: 1 }, { taskId: 'task-1' }),
  ])('notice %o is ignored, and only the first is reported', async (notice) => {
    const { backend, session, warnings } = open()
    await session.startTelemetry()
    backend.notice(notice as unknown as Notice)
    backend.notice(notice as unknown as Notice)
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toContain('BackendMisused: a notice of backend "fake" was ignored')
  })

  it('jobs that submit() does not take fail at once with a BackendError', async () => {
    const { session } = open(new ThrowingBackend('submit'))
    const task = quick({ retries: 3 })
    await session.submitTasks([task])
    await expect(task).rejects.toThrow('the backend failed to accept the job: broken')
    expect((task.error as Error).cause).toBeInstanceOf(BackendError)
  })

  it('a job that cancel() fails for ends CANCELED', async () => {
    const { session } = open(new ThrowingBackend('cancel'))
    const task = quick()
    await session.submitTasks([task])
    expect(session.cancel(task, 'enough')).toBe(true)
    expect(task.state).toBe('CANCELED')
  })

  it.each([
    ['no name', { refuse() {}, connect() {}, close() {} }, 'backend.name'],
    ['an empty name', { name: '', refuse() {}, connect() {}, close() {} }, 'backend.name'],
    ['no refuse', { name: 'x', connect() {}, close() {} }, '`refuse`'],
    ['no connection', { name: 'x', refuse() {}, connect() {}, close() {} }, '`submit` is missing'],
  ])('a backend with %s is refused by addBackend', (_, backend, text) => {
    const { session } = open()
    expect(() => session.addBackend(backend as unknown as Backend)).toThrow(text)
  })

  it('a session with the same backend twice is refused before any of them is connected', () => {
    let connected = 0
    class CountedBackend extends FakeBackend {
      override connect(...args: Parameters<FakeBackend['connect']>) {
        connected++
        return super.connect(...args)
      }
    }
    const backend = new CountedBackend({ name: 'counted' })
    expect(() => new Session([backend, backend])).toThrow('already has a backend "counted"')
    expect(connected).toBe(0)
  })

  it.each([
    { at: Number.NaN },
    { at: 'x' },
    { node: { cpu_percent: 'many' } },
    { node: { cpu_percent: 101 } },
    { gpus: [{ gpu_id: -1, gpu_percent: 1 }] },
  ])('the pushed sample %o is not recorded', async (wrong) => {
    const { backend, session, warnings } = open()
    const telemetry = await session.startTelemetry()
    const types: string[] = []
    telemetry.subscribe(({ event_type }) => void types.push(event_type))
    const node = {
      cpu_percent: 1,
      memory_percent: null,
      disk_read_bytes: null,
      disk_write_bytes: null,
      net_sent_bytes: null,
      net_recv_bytes: null,
      ...(wrong as { node?: object }).node,
    }
    const notice = { kind: 'sample', nodeId: 'n1', sample: { gpus: [], ...wrong, node } }
    backend.notice(notice as unknown as Notice)
    await telemetry.flush()
    expect([types.includes('ResourceUpdate'), warnings.length]).toEqual([false, 1])
    expect(warnings[0]).toContain('sample.')
  })
})
