import { expect, it } from 'vitest'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { eventsOf } from '../../views/synthetic-run.ts'
import { allTasks, ask, sourceOf } from './query-run.ts'

const hostile = [
  '<img src=x onerror=alert(1)>',
  'evil\u001B[31m\u0007',
  '\u202Egnp.exe\u2066',
  'long'.repeat(50_000),
]

const events = (): ViewEvent[] =>
  eventsOf({
    nodes: [{ nodeId: hostile[2] ?? '', cores: 1 }],
    tasks: hostile.map((text, at) => ({
      uid: text,
      name: text,
      created: 0,
      start: at,
      end: at + 1,
      worker: `${hostile[2]}/local/${at}`,
      endType: 'TaskFailed' as const,
    })),
    end: 10,
  }).map((event) =>
    event.event_type === 'TaskFailed'
      ? {
          ...event,
          error_type: hostile[1],
          attributes: {
            ...event.attributes,
            error_message: `${event.task_id}`,
            stdout_tail: hostile[1],
            stderr_tail: hostile[2],
            workflow_id: hostile[2],
          },
        }
      : event,
  )

/** Everything that is shown of the run. */
async function everything() {
  const source = sourceOf(events(), { sessionId: hostile[1] ?? '' })
  const { rows } = await ask(source, 'tasks', allTasks)
  return [
    await ask(source, 'head', {}),
    await ask(source, 'stream', { filter: { from: 0 }, range: {}, cells: 10 }),
    await ask(source, 'progress', {}),
    rows,
    await ask(source, 'failures', {}),
    await ask(source, 'workers', {}),
    await ask(source, 'events', { q: '', limit: 100 }),
    await ask(source, 'health', {}),
    await Promise.all(rows.map(({ uid }) => ask(source, 'task', { uid }))),
  ]
}

it('row 91: control and bidirectional characters are escapes, and long texts are cut', async () => {
  const texts: string[] = []
  JSON.stringify(await everything(), (key, value: unknown) => {
    texts.push(key)
    if (typeof value === 'string') texts.push(value)
    return value
  })
  expect(texts).toContain('evil\\u001b[31m\\u0007')
  expect(texts.filter((text) => /[\p{Cf}]|[^\P{Cc}\n]/u.test(text))).toEqual([])
  expect(Math.max(...texts.map(({ length }) => length))).toBeLessThan(10_000)
})

it('a task and a name are found again by the text that was shown', async () => {
  const source = sourceOf(events())
  const { rows } = await ask(source, 'tasks', allTasks)
  expect(rows).toHaveLength(hostile.length)
  for (const { uid, name } of rows) {
    expect((await ask(source, 'task', { uid })).uid).toBe(uid)
    const named = await ask(source, 'tasks', { ...allTasks, filter: { name } })
    expect(named.rows.map((row) => row.uid)).toEqual([uid])
  }
  await expect(ask(source, 'task', { uid: 'none' })).rejects.toThrow('there is no task "none"')
})

it('row 94: events whose types are names of properties of every object are shown', async () => {
  const types = ['constructor', 'hasOwnProperty', 'toString', '__proto__']
  const [first] = events()
  const all = types.map((event_type) => ({ ...first, event_type }) as ViewEvent)
  const source = sourceOf([...events(), ...all])
  const found = await ask(source, 'events', { q: '-state:/x/', limit: 100 })
  expect(found.events.map(({ type }) => type)).toEqual(expect.arrayContaining(types))
  expect((await ask(source, 'health', {})).warnings).toEqual([])
})
