import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { ExecutableFailedError } from '../../src/foundation/task-errors.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { names } from '../../src/views/panels/names.ts'
import { Pass } from '../../src/views/pass.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { attribute, rejection, turns, typesOf } from '../session/open-session.ts'
import { openEngine } from './open-engine.ts'

describe('an executable task', () => {
  it('executable task: runs the returned program with values and without a shell', async () => {
    await using flow = await WorkflowEngine.create({ backend: await ConcurrentBackend.create() })
    const echo = flow.executableTask((text: string) => ['echo', text])
    const cat = flow.executableTask(async ({ stdout }: { stdout: string }) => ({
      executable: 'cat',
      stdin: stdout,
    }))
    const hostile = '$HOME;id `id`'
    expect((await cat(echo(hostile))).stdout).toBe(`${hostile}\n`)
    const fails = flow.executableTask(() => ['sh', '-c', 'exit 3'])()
    expect(await rejection(fails)).toBeInstanceOf(ExecutableFailedError)
    expect(fails.error).toMatchObject({ exitCode: 3, uid: fails.uid })
  })

  it('executable task: events name the body first and then the program', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const simulate = flow.executableTask(function simulate(n: number) {
      return { executable: './sim', arguments: ['-n', String(n)], cwd: '/tmp' }
    })
    const handle = simulate(3)
    await turns()
    backend.complete(handle, { stdout: '', stderr: '', exitCode: 0 })
    await handle
    const events = await eventsOf(handle)
    const told = ['simulate', './sim', './sim', './sim']
    expect(events.map((event) => attribute(event, 'executable'))).toEqual(told)
    expect(new Set(events.map((event) => attribute(event, 'task_type')))).toEqual(
      new Set(['compute']),
    )
    expect(backend.jobOf(handle).spec).toMatchObject({
      arguments: ['-n', '3'],
      cwd: '/tmp',
    })
  })

  const wrong: readonly [string, unknown, string][] = [
    ['nothing', undefined, 'program'],
    ['no program', [], 'argv'],
    ['a shell', { executable: 'ls', shell: true }, 'shell'],
    ['an unknown field', { executable: 'ls', args: ['x'] }, 'args'],
    ['a number as argument', ['ls', 1], 'arguments[0]'],
  ]
  it.each(wrong)(
    'executable task: a body that returns %s fails the task',
    async (_, given, message) => {
      const { flow, eventsOf, backend } = await openEngine()
      const handle = flow.executableTask(() => given as readonly [string])()
      expect((await rejection(handle)).message).toContain(message)
      expect(typesOf(await eventsOf(handle)).at(-1)).toBe('TaskFailed')
      expect(backend.jobs).toEqual([])
    },
  )

  it('executable task: it can be canceled while its body runs', async () => {
    const { flow, backend } = await openEngine()
    const { promise, resolve } = Promise.withResolvers<readonly [string]>()
    const handle = flow.executableTask(() => promise)()
    await turns()
    expect(handle.cancel()).toBe(true)
    resolve(['ls'])
    await turns()
    expect([handle.state, backend.jobs.length]).toEqual(['CANCELED', 0])
  })
})

describe('a prompt task', () => {
  const openTwo = async () => {
    const refuse = ({ kind }: { readonly kind: string }) =>
      kind === 'prompt' ? { field: 'prompt', message: 'runs no prompts' } : null
    const local = new FakeBackend({ name: 'local', refuse })
    const llm = new FakeBackend({ name: 'llm', model: 'tiny' })
    return { local, llm, ...(await openEngine({ backend: [local, llm] })) }
  }

  it('prompt task: runs on the first backend that takes prompts', async () => {
    const { flow, local, llm, eventsOf } = await openTwo()
    const measure = flow.functionTask(() => 42)
    const ask = flow.promptTask((n: number) => `What is ${n}?`, { temperature: 0.1, maxTokens: 5 })
    const measured = measure()
    const handle = ask(measured)
    await turns()
    local.complete(measured, 42)
    await turns()
    const { spec } = llm.jobOf(handle)
    expect(spec).toMatchObject({ prompt: 'What is 42?', sampling: { temperature: 0.1 } })
    llm.complete(handle, 'an answer')
    expect(await handle).toBe('an answer')
    const events = await eventsOf(handle)
    expect(attribute(events.at(-1), 'executable')).toBe('tiny')
    expect(attribute(events.at(-1), 'task_type')).toBe('ai')
  })

  it('prompt task: events name the model once it is known', async () => {
    const { flow, llm, eventsOf } = await openTwo()
    const ask = (): string => 'hm?'
    const named = flow.promptTask(ask, { model: 'tiny' })()
    const open = flow.promptTask(ask)()
    await turns()
    for (const handle of [named, open]) llm.complete(handle, 'an answer')
    const wordsOf = async (handle: typeof open): Promise<unknown[]> =>
      (await eventsOf(handle)).map((event) => attribute(event, 'executable'))
    expect(new Set(await wordsOf(named))).toEqual(new Set(['tiny']))
    const [created, ...later] = await wordsOf(open)
    expect([created, ...new Set(later)]).toEqual(['', 'tiny'])
  })

  it('prompt task: its name is in TaskCreated, and where tasks are listed', async () => {
    const { flow, llm, events } = await openTwo()
    const classify = flow.promptTask((text: string) => text, { name: 'classify' })
    const summarise = flow.promptTask(function summarise(text: string) {
      return text
    })
    const unnamed = flow.promptTask((text: string) => text)
    const handles = [classify('a'), classify('b'), summarise('a'), unnamed('a')]
    await turns()
    for (const handle of handles) llm.complete(handle, 'an answer')
    await Promise.all(handles)
    const all = (await events()).filter(({ task_id: id }) => id !== null)
    const namesOf = (uid: string): unknown[] => {
      const own = all.filter(({ task_id: id }) => id === uid)
      return [...new Set(own.map((event) => attribute(event, 'task_name')))]
    }
    expect(handles.map(({ uid }) => namesOf(uid))).toEqual([
      ['classify', undefined],
      ['classify', undefined],
      ['summarise', undefined],
      [undefined],
    ])
    const pass = new Pass({ names })
    for (const event of all) pass.take(event)
    const shown = names.show(pass.states.names, { durations: false })
    expect(shown.map(({ name, completed }) => [name, completed])).toEqual([
      ['classify', 2],
      ['summarise', 1],
      ['tiny', 1],
    ])
  })

  it('prompt task: the body may return a list, or a prompt with options', async () => {
    const { flow, llm } = await openTwo()
    const list = flow.promptTask(() => ['a', 'b'])()
    const own = flow.promptTask(async () => ({ prompt: 'c', seed: 7 }), { backend: 'llm' })()
    await turns()
    expect(llm.jobOf(list).spec).toMatchObject({ prompt: ['a', 'b'] })
    expect(llm.jobOf(own).spec).toMatchObject({ prompt: 'c', sampling: { seed: 7 } })
  })

  it('prompt task: fails without a prompt, and without a backend for prompts', async () => {
    const { flow } = await openTwo()
    const nothing = flow.promptTask(() => 7 as unknown as string)()
    expect((await rejection(nothing)).message).toContain('prompt')
    const refuse = () => ({ field: 'prompt', message: 'runs no prompts' })
    const alone = await openEngine({ id: 'alone' }, new FakeBackend({ name: 'local', refuse }))
    const lost = alone.flow.promptTask(() => 'hm?')()
    expect((await rejection(lost)).message).toContain('prompt: runs no prompts')
  })
})
