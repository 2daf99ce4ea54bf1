import { expect, it, onTestFinished } from 'vitest'
import type { Backend, Connection, Job } from '../../src/backends/backend.ts'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'

/** A backend of somebody's own that leaves the work to others. */
function delegate(connect: Backend['connect']): Backend {
  return {
    name: 'own',
    refuse: () => null,
    connect,
    close: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  }
}

async function openLocal(): Promise<ConcurrentBackend> {
  const backend = await ConcurrentBackend.create({ workers: 1, maxProcesses: 1 })
  onTestFinished(() => backend.close())
  return backend
}

const sleeper = (): ComputeTask =>
  new ComputeTask({ executable: '/bin/sleep', arguments: ['600'], resources: { cores: 1 } })

it('a job is data: it can be frozen, cloned and written as JSON', async () => {
  const seen: Job[] = []
  const inner = await openLocal()
  const own = delegate((listener, session) => {
    const line = inner.connect(listener, session)
    return {
      ...line,
      submit(jobs) {
        seen.push(...jobs)
        line.submit(jobs.map((job) => Object.freeze(job)))
      },
    }
  })
  await using session = new Session([own])
  const task = new ComputeTask({ executable: '/bin/echo', arguments: ['hi'] })
  await session.submitTasks([task])
  expect((await task).stdout).toBe('hi\n')
  const [job] = seen as [Job]
  expect(Object.keys(job)).toEqual(['sessionId', 'uid', 'attempt', 'isRetry', 'spec'])
  const { uid, spec } = task
  const plain = { sessionId: session.id, uid, attempt: 1, isRetry: false, spec: { ...spec } }
  expect(JSON.parse(JSON.stringify(job))).toEqual(plain)
  expect(structuredClone(job)).toEqual(plain)
})

it('the first of two backends that got the same job decides, and both let go of it', async () => {
  const [one, two] = [await openLocal(), await openLocal()]
  const lines: Connection[] = []
  const own = delegate((listener, session) => {
    lines.push(one.connect(listener, session), two.connect(listener, session))
    return {
      submit: (jobs) => lines.forEach((line) => line.submit(jobs)),
      cancel: (job, reason) => lines.forEach((line) => line.cancel(job, reason)),
      recorded: (jobs) => lines.forEach((line) => line.recorded?.(jobs)),
      release: async (reason) =>
        void (await Promise.all(lines.map((line) => line.release(reason)))),
    }
  })
  const session = new Session([own])
  const tasks = [1, 2, 3].map((value) => new ComputeTask({ function: () => value }))
  const canceled = sleeper()
  await session.submitTasks([...tasks, canceled])
  expect(await Promise.all(tasks)).toEqual([1, 2, 3])
  session.cancel(canceled, 'enough')
  await expect(canceled).rejects.toMatchObject({ reason: 'enough' })
  await Promise.all(lines.map((line) => line.release('over')))
  await session.close()
})

it('a copy of a job is not the job: canceling it changes nothing', async () => {
  const inner = await openLocal()
  const own = delegate((listener, session) => {
    const line = inner.connect(listener, session)
    return { ...line, cancel: (job, reason) => line.cancel({ ...job }, reason) }
  })
  await using session = new Session([own])
  const [running, waiting] = [sleeper(), sleeper()]
  await session.submitTasks([running, waiting])
  session.cancel(waiting, 'by a copy')
  expect(waiting.state).toBe('QUEUED')
  await session.close()
  expect([running.state, waiting.state]).toEqual(['CANCELED', 'CANCELED'])
})
