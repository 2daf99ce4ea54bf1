import { describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { changedParts } from '../../src/tasks/definition-hash.ts'
import { echo, wait } from '../../src/testing/contract-tasks.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'

type AnyTask = ComputeTask<unknown>

/** The hashes of tasks as the record has them. */
async function hashesOf(...tasks: readonly AnyTask[]): Promise<readonly unknown[]> {
  const session = new Session([await ConcurrentBackend.create({ cores: 8, memoryMb: 4096 })])
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry()
  const hashes = new Map<string, unknown>()
  telemetry.subscribe((event) => {
    if (event.event_type !== 'TaskCreated' || event.task_id === null) return
    hashes.set(event.task_id, event.attributes['definition_hash'])
  })
  await session.submitTasks([...tasks])
  await session.close()
  return tasks.map(({ uid }) => hashes.get(uid))
}

const changes = async (one: AnyTask, other: AnyTask): Promise<readonly string[]> => {
  const [before, now] = await hashesOf(one, other)
  return changedParts(String(before), String(now))
}

describe('definition_hash', () => {
  it('definition_hash is equal for equal functions and arguments', async () => {
    const limits = { timeoutSeconds: 9, retries: 2, priority: 3, resources: { cores: 2 } }
    const one = new ComputeTask({ function: echo, args: [{ b: 1, a: new Map([[1, 2]]) }] })
    const other = new ComputeTask({
      uid: 'another',
      function: echo,
      args: [{ b: 1, a: new Map([[1, 2]]) }],
      ...limits,
    })
    expect(await changes(one, other)).toEqual([])
    // A function can see the order of keys.
    const [ab, ba] = [
      { a: 1, b: 2 },
      { b: 2, a: 1 },
    ].map((given) => new ComputeTask({ function: echo, args: [given] }))
    expect(ab && ba && (await changes(ab, ba))).toEqual(['input'])
  })

  it('definition_hash says whether the code or the input differs', async () => {
    const first = new ComputeTask({ function: echo, args: [1] })
    expect(await changes(first, new ComputeTask({ function: echo, args: [2] }))).toEqual(['input'])
    expect(
      await changes(
        new ComputeTask({ function: wait }),
        new ComputeTask({ function: echo, args: [] as never }),
      ),
    ).toEqual(['code'])
  })

  it('definition_hash differs for texts and lists that only look alike', async () => {
    const withHole = (...items: unknown[]): unknown[] => {
      Reflect.deleteProperty(items, 1)
      return items
    }
    const pairs: readonly [unknown, unknown][] = [
      ['\ud800', '\ud801'],
      [withHole(1, 0, 2), [1, undefined, 2]],
      [withHole({}, 0, 2), [{}, undefined, 2]],
    ]
    for (const [one, other] of pairs) {
      const of = (value: unknown) => new ComputeTask({ function: echo, args: [value] })
      expect(await changes(of(one), of(other))).toEqual(['input'])
      expect(await changes(of(one), of(one))).toEqual([])
    }
  })

  it('definition_hash of a program is equal without and with an empty environment', async () => {
    const program = { executable: '/bin/true' }
    expect(
      await changes(new ComputeTask(program), new ComputeTask({ ...program, env: {} })),
    ).toEqual([])
  })

  it('definition_hash of a program covers arguments, folder, environment and files', async () => {
    const program = { executable: '/bin/true', arguments: ['a'] }
    const same = new ComputeTask({ ...program, killBackground: true })
    expect(await changes(new ComputeTask(program), same)).toEqual([])
    for (const change of [
      { arguments: ['b'] },
      { cwd: '/' },
      { env: { A: '1' } },
      { stdin: 'x' },
      { captureStdio: { stdout: 'out' } },
    ]) {
      const other = new ComputeTask({ ...program, ...change })
      expect(await changes(new ComputeTask(program), other)).toEqual(['input'])
    }
  })

  it('definition_hash is absent when an argument has no comparable content', async () => {
    const task = new ComputeTask({ function: (body: () => number) => body(), args: [() => 1] })
    expect(await hashesOf(task)).toEqual([undefined])
  })

  it('definition_hash of a workflow call follows from its handles, before any value', async () => {
    const run = async (start: number): Promise<readonly string[]> => {
      const flow = await WorkflowEngine.create({ backend: await ConcurrentBackend.create() })
      onTestFinished(() => flow.shutdown())
      const telemetry = await flow.startTelemetry()
      const created: BaseEvent[] = []
      telemetry.subscribe((event) => {
        if (event.event_type === 'TaskCreated') created.push(event)
      })
      const seed = flow.functionTask(function seed(value: number) {
        return value + performance.now()
      })
      const add = flow.functionTask(function add(a: number, list: readonly number[]) {
        return a + list.length
      })
      await add(1, [seed(start)])
      await flow.shutdown()
      return created.map((event) => String(event.attributes['definition_hash']))
    }
    const [first, again, other] = [await run(1), await run(1), await run(2)]
    expect(again).toEqual(first)
    expect(changedParts(first[0] ?? '', other[0] ?? '')).toEqual(['input'])
    expect(changedParts(first[1] ?? '', other[1] ?? '')).toEqual(['dependencies'])
  })
})
