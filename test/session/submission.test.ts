import { describe, expect, it } from 'vitest'
import type { AnyTask } from '../../src/backends/backend.ts'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { StateError, ValueError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import type { TaskSpec } from '../../src/tasks/spec.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { attribute, openSession, quick, rejection, turns, typesOf } from './open-session.ts'

/** For lists that the types would refuse. */
const asTasks = (list: unknown): readonly AnyTask[] => list as readonly AnyTask[]

describe('row 1: submission is all or nothing', () => {
  it('row 1: an empty list is accepted and returned', async () => {
    const { session, events } = await openSession()
    const none: AnyTask[] = []
    expect(await session.submitTasks(none)).toBe(none)
    expect(await events()).toEqual([])
  })

  const wrongLists: readonly [unknown, string][] = [
    [null, 'Expected `tasks` to be an array of tasks, got `null`'],
    [undefined, 'Expected `tasks` to be an array of tasks, got `undefined`'],
    ['abc', 'Expected `tasks` to be an array of tasks, got `abc` (string)'],
    [{ length: 1 }, 'Expected `tasks` to be an array of tasks, got `{"length":1}` (object)'],
    [[null], 'tasks[0]: expected a task, got `null`'],
    [[{ kind: 'function' }], 'tasks[0]: expected a task, got `{"kind":"function"}` (object)'],
    // oxlint-disable-next-line no-sparse-arrays
    [[,], 'tasks[0]: expected a task, got `undefined`'],
  ]
  it.each(wrongLists)('row 1: the list %j is refused', async (list, message) => {
    const { session, events } = await openSession()
    const error = await rejection(session.submitTasks(asTasks(list)))
    expect(error).toBeInstanceOf(ValueError)
    expect(error.message).toBe(message)
    expect(await events()).toEqual([])
  })

  it('row 1: one wrong task in 1,000 leaves the others untouched and submittable', async () => {
    const { session, backend, events } = await openSession()
    const good = Array.from({ length: 999 }, () => quick())
    const list: unknown[] = [...good]
    list.splice(417, 0, 'not a task')
    const error = await rejection(session.submitTasks(asTasks(list)))
    expect(error).toMatchObject({
      code: 'ValueError',
      field: 'tasks[417]',
      message: 'tasks[417]: expected a task, got `not a task` (string)',
      hint: expect.stringContaining('Nothing was submitted') as string,
    })
    expect(backend.jobs).toEqual([])
    expect(await events()).toEqual([])
    expect(new Set(good.map(({ state }) => state))).toEqual(new Set(['CREATED']))
    await expect(session.submitTasks(good)).resolves.toBe(good)
    expect(backend.jobs).toHaveLength(999)
  })

  it('row 1: every wrong task is named, the first in full and the rest by index', async () => {
    const { session } = await openSession()
    const list = Array.from({ length: 60 }, (_, at) =>
      quick({ backend: at < 40 ? 'locl' : 'local' }),
    )
    list[50] = quick({ backend: 'elsewhere' })
    const { message } = await rejection(session.submitTasks(list))
    const lines = message.split('\n')
    expect(lines).toHaveLength(21)
    expect(lines[0]).toBe(
      'tasks[0].backend: no backend "locl" (have: local); did you mean "local"?',
    )
    expect(lines[19]).toMatch(/^tasks\[19\]\.backend: /)
    expect(lines[20]).toBe('and 21 more: tasks[20..39], tasks[50]')
  })

  it('row 1: tasks of a backend whose refuse() throws can be submitted again', async () => {
    let isBroken = true
    const refuse = () => {
      if (isBroken) throw new RangeError('judge is ill')
      return null
    }
    const { session, backend } = await openSession({ backends: [{ name: 'local', refuse }] })
    const task = quick({ uid: 'mine' })
    expect(await rejection(session.submitTasks([task]))).toBeInstanceOf(RangeError)
    isBroken = false
    await session.submitTasks([task])
    expect(backend.jobs.map(({ uid }) => uid)).toEqual(['mine'])
  })

  it('submission: later changes of the list have no effect', async () => {
    const { session, backend } = await openSession()
    const list = Array.from({ length: 2500 }, () => quick())
    const [uids, pending] = [list.map(({ uid }) => uid), session.submitTasks(list)]
    list.length = 0
    await pending
    expect(backend.jobs.map(({ uid }) => uid)).toEqual(uids)
  })
})

describe('row 2: unknown backends', () => {
  it('row 2: an unknown backend is named with the known ones; no event is emitted', async () => {
    const { session, events } = await openSession({
      backends: [{ name: 'concurrent' }, { name: 'llm' }],
    })
    const error = await rejection(session.submitTasks([quick({ backend: 'concurent' })]))
    expect(error).toMatchObject({ code: 'UnknownBackendError', field: 'tasks[0].backend' })
    expect(error).toBeInstanceOf(ValueError)
    expect(error.message).toBe(
      'tasks[0].backend: no backend "concurent" (have: concurrent, llm); ' +
        'did you mean "concurrent"?',
    )
    expect(await events()).toEqual([])
  })

  it('row 2: no suggestion when no name is near, or there is no backend', async () => {
    const { session } = await openSession({ backends: [] })
    const error = await rejection(session.submitTasks([quick({ backend: 'gpu' })]))
    expect(error.message).toBe('tasks[0].backend: no backend "gpu" (have: none)')
    const lost = await rejection(session.submitTasks([quick()]))
    expect(lost.message).toBe('tasks[0]: no backend can run it (the session has none)')
  })

  it('submission: different problems give the code ValueError', async () => {
    const { session } = await openSession()
    const error = await rejection(
      session.submitTasks(asTasks([quick({ backend: 'locl' }), 7, quick()])),
    )
    expect(error).toMatchObject({ code: 'ValueError', field: 'tasks[0].backend' })
    expect(error.message.split('\n')).toHaveLength(2)
  })
})

describe('duplicate tasks', () => {
  const duplicate = (at: number, uid: string) => ({
    code: 'DuplicateTaskError',
    field: `tasks[${at}].uid`,
    message: `tasks[${at}].uid: "${uid}" was already submitted`,
  })

  it('row 3: the same task twice in a list is refused, and nothing is submitted', async () => {
    const { session, events } = await openSession()
    const task = quick({ uid: 'a' })
    expect(await rejection(session.submitTasks([task, task]))).toMatchObject(duplicate(1, 'a'))
    expect(await events()).toEqual([])
    await session.submitTasks([task])
    expect(task.state).toBe('QUEUED')
  })

  it('row 3: two tasks with one uid are refused', async () => {
    const { session } = await openSession()
    const [one, two] = [quick({ uid: 'a' }), quick({ uid: 'a' })]
    expect(await rejection(session.submitTasks([one, two]))).toMatchObject(duplicate(1, 'a'))
  })

  it('row 3: a submitted task is refused, and the first submission continues', async () => {
    const { session, backend, eventsOf } = await openSession()
    const [task, other] = [quick(), quick()]
    await session.submitTasks([task])
    const error = await rejection(session.submitTasks([other, task]))
    expect(error).toMatchObject(duplicate(1, task.uid))
    expect(typesOf(await eventsOf(task))).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskQueued'])
    backend.complete(task, 'fine')
    expect(await task).toBe('fine')
    expect(await rejection(session.submitTasks([task]))).toMatchObject(duplicate(0, task.uid))
  })

  it('row 3: the chosen uid of an ended task is refused', async () => {
    const { session, backend } = await openSession()
    const first = quick({ uid: 'a' })
    await session.submitTasks([first])
    backend.complete(first)
    await first
    const again = quick({ uid: 'a' })
    expect(await rejection(session.submitTasks([again]))).toMatchObject(duplicate(0, 'a'))
  })

  it('row 3: a generated uid is refused, also after its task has ended', async () => {
    const { session, backend } = await openSession()
    const task = quick()
    const twin = quick({ uid: task.uid })
    expect(await rejection(session.submitTasks([task, twin]))).toMatchObject(duplicate(1, task.uid))
    await session.submitTasks([task])
    expect(await rejection(session.submitTasks([twin]))).toMatchObject(duplicate(0, task.uid))
    backend.complete(task)
    await task
    expect(await rejection(session.submitTasks([twin]))).toMatchObject(duplicate(0, task.uid))
    await (await openSession()).session.submitTasks([twin])
  })

  it('row 3: a uid that only resembles a generated one is accepted', async () => {
    const { session } = await openSession()
    const task = quick()
    const longer = quick({ uid: task.uid.replace('-', '-0') })
    await session.submitTasks([task, longer])
    expect([task.state, longer.state]).toEqual(['QUEUED', 'QUEUED'])
  })

  it('row 3: a refused submission leaves all its uids free', async () => {
    const { session } = await openSession()
    const [fine, chosen] = [quick(), quick({ uid: 'a' })]
    const wrong = quick({ uid: 'b', backend: 'nowhere' })
    await rejection(session.submitTasks([fine, chosen, wrong]))
    await session.submitTasks([fine, quick({ uid: 'a' }), quick({ uid: 'b' })])
  })

  it('row 3: a task that another session has accepted is refused', async () => {
    const [one, two] = [await openSession(), await openSession()]
    const task = quick()
    const first = one.session.submitTasks([task])
    expect(await rejection(two.session.submitTasks([task]))).toMatchObject(duplicate(0, task.uid))
    await first
    expect([one.backend.jobs.length, two.backend.jobs.length]).toEqual([1, 0])
    expect(await two.events()).toEqual([])
  })

  it('row 3: a chosen uid is never generated', async () => {
    const next = quick().uid.replace(/\d+/, (number) => String(Number(number) + 1).padStart(6, '0'))
    const [chosen, generated] = [quick({ uid: next }), quick()]
    expect(generated.uid).not.toBe(chosen.uid)
    const { session } = await openSession()
    await session.submitTasks([chosen, generated])
  })
})

describe('row 4: a closed session', () => {
  it('row 4: a closed session refuses tasks and backends, and emits nothing', async () => {
    const { session, all } = await openSession()
    await session.close()
    const before = all.length
    const task = quick()
    const error = await rejection(session.submitTasks([task]))
    expect(error).toBeInstanceOf(StateError)
    expect(error).toMatchObject({ code: 'SessionClosedError', hint: 'Create a new session.' })
    expect(() => session.addBackend(new NoopBackend())).toThrow(
      expect.objectContaining({ code: 'SessionClosedError' }),
    )
    await expect(session.startTelemetry()).rejects.toMatchObject({ code: 'SessionClosedError' })
    await turns()
    expect(all).toHaveLength(before)
    expect(task.state).toBe('CREATED')
  })
})

describe('routing', () => {
  const noPrompts = (spec: TaskSpec) =>
    spec.kind === 'prompt' ? { field: 'prompt', message: 'runs no prompts' } : null

  it('routing: a task without backend goes to the first that does not refuse it', async () => {
    const { session, backends } = await openSession({
      backends: [{ name: 'local', refuse: noPrompts }, { name: 'llm', model: 'm' }, { name: 'z' }],
    })
    const [work, ask, named] = [
      quick(),
      new AITask({ prompt: 'a', model: 'x' }),
      quick({ backend: 'z' }),
    ]
    await session.submitTasks([work, ask, named])
    expect([work.backend, ask.backend, named.backend]).toEqual(['local', 'llm', 'z'])
    expect(backends.map(({ jobs }) => jobs.length)).toEqual([1, 1, 1])
  })

  it('routing: a prompt goes to its backend, its model, or the first for prompts', async () => {
    const serves = (model: string) => (spec: TaskSpec) =>
      spec.kind === 'prompt' && (spec.model === null || spec.model === model)
        ? null
        : { field: 'model', message: `serves "${model}"` }
    const { session, eventsOf } = await openSession({
      backends: [
        { name: 'local', refuse: noPrompts },
        { name: 'small', model: 'm1', refuse: serves('m1') },
        { name: 'large', model: 'm2', refuse: serves('m2') },
      ],
    })
    const plain = new AITask({ prompt: 'Why?' })
    const byModel = new AITask({ prompt: 'Why?', model: 'm2' })
    const byName = new AITask({ prompt: 'Why?', backend: 'large' })
    await session.submitTasks([plain, byModel, byName])
    expect([plain, byModel, byName].map(({ backend }) => backend)).toEqual([
      'small',
      'large',
      'large',
    ])
    const names = (await eventsOf(plain)).map((event) => attribute(event, 'executable'))
    expect(names).toEqual(['', 'm1', 'm1'])
    const lost = new AITask({ prompt: 'Why?', model: 'm3' })
    const error = await rejection(session.submitTasks([lost]))
    expect(error.message).toContain('small: model: serves "m1"; large: model: serves "m2"')
  })

  it('routing: the refusal of the only backend gives field and code of the error', async () => {
    const refuse = () => ({ field: 'resources.gpus', message: 'asks for 8, has 0', code: 'NoGpu' })
    const { session } = await openSession({ backends: [{ name: 'local', refuse }] })
    for (const task of [quick(), quick({ backend: 'local' })]) {
      expect(await rejection(session.submitTasks([task]))).toMatchObject({
        code: 'NoGpu',
        field: 'tasks[0].resources.gpus',
        message: 'tasks[0].resources.gpus: asks for 8, has 0 (backend "local")',
      })
    }
  })

  it('routing: the error names the refusal of every backend', async () => {
    const { session } = await openSession({
      backends: [
        { name: 'a', refuse: () => ({ field: 'function', message: 'runs no closures' }) },
        { name: 'b', refuse: () => ({ field: 'resources.gpus', message: 'has none' }) },
      ],
    })
    const error = await rejection(session.submitTasks([quick()]))
    expect(error.message).toBe(
      'tasks[0]: no backend can run it ' +
        '(a: function: runs no closures; b: resources.gpus: has none)',
    )
  })

  it('routing: each backend gets its tasks in order, with the work folder', async () => {
    const [a, b] = [new FakeBackend({ name: 'a' }), new FakeBackend({ name: 'b' })]
    await using session = new Session([a, b], { workDir: '/' })
    const tasks = Array.from({ length: 2500 }, (_, at) => quick({ backend: at % 2 ? 'b' : 'a' }))
    await session.submitTasks(tasks)
    for (const backend of [a, b]) {
      const expected = tasks.filter((task) => task.backend === backend.name)
      expect(backend.jobs.map(({ uid }) => uid)).toEqual(expected.map(({ uid }) => uid))
      const told = backend.jobs.map(
        ({ sessionId, attempt, spec }) => `${sessionId} ${attempt} ${spec.workDir}`,
      )
      expect(new Set(told)).toEqual(new Set([`${session.id} 1 /`]))
    }
  })
})

describe('a session', () => {
  it('session: wrong options and two backends of one name are refused', async () => {
    expect(() => new Session([], { id: '../x' })).toThrow(ValueError)
    expect(() => new Session([], { workdir: '.' } as object)).toThrow(/did you mean "workDir"/)
    expect(() => new Session([], { workDir: '/missing' })).toThrow(
      expect.objectContaining({
        name: 'ValueError',
        field: 'workDir',
        message: expect.stringContaining('workDir: /missing cannot be used: ENOENT') as string,
      }),
    )
    expect(() => new Session([], { workDir: process.execPath })).toThrow(/is not a folder/)
    expect(() => new Session(undefined as never)).toThrow(/backends/)
    expect(() => new Session([new NoopBackend(), {} as never])).toThrow(/`backends\[1\]`/)
    expect(() => new Session([new NoopBackend(), new NoopBackend()])).toThrow(
      expect.objectContaining({ field: 'backend.name' }),
    )
  })

  it('session: a promise of a backend is refused with a hint at the missing await', async () => {
    await using session = new Session([])
    const promise = Promise.resolve(new NoopBackend()) as never
    const refused: [() => unknown, string][] = [
      [() => new Session([promise]), 'backends[0]'],
      [() => new Session([new NoopBackend(), promise]), 'backends[1]'],
      [() => session.addBackend(promise), 'backend'],
    ]
    for (const [call, field] of refused) {
      expect(call).toThrow(
        expect.objectContaining({
          name: 'ValueError',
          field,
          message: `Expected \`${field}\` to be a backend, got a promise: await it first`,
          hint: expect.stringContaining('await ConcurrentBackend.create()') as string,
        }),
      )
    }
  })

  it('session: backends can be added at any time', async () => {
    const { session, eventsOf } = await openSession({ backends: [] })
    const late = new FakeBackend({ name: 'late' })
    session.addBackend(late)
    expect(session.backends).toEqual([late])
    const program = new ComputeTask({ executable: '/bin/true', backend: 'late' })
    await session.submitTasks([program])
    const [created, submitted] = await eventsOf(program)
    expect([created?.backend, submitted?.backend]).toEqual(['', 'late'])
    expect(attribute(created, 'executable')).toBe('/bin/true')
  })
})
