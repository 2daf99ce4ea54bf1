import { expect, it } from 'vitest'
import type { Job } from '../../../src/backends/backend.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import { encodeJobs, unpackJobs } from '../../../src/cluster/wire/job-batches.ts'
import type { DriverMessage } from '../../../src/cluster/wire/messages.ts'
import { defaultResources } from '../../../src/tasks/resources.ts'
import type { TaskSpec } from '../../../src/tasks/spec.ts'

const common = { priority: 0, timeoutSeconds: null, resources: defaultResources, workDir: null }
const specs = {
  function: {
    ...common,
    kind: 'function',
    executable: 'nothing',
    definition: { module: 'file:///nothing.js', name: 'nothing' },
    args: [],
  },
  program: {
    ...common,
    kind: 'executable',
    executable: '/bin/true',
    arguments: [],
    env: {},
    captureStdio: false,
  },
} as unknown as Readonly<Record<string, TaskSpec>>

it.each([
  ['program function function'],
  ['function program function program'],
  ['function function program'],
  ['program program'],
  ['function'],
])('jobs come out of a message in the order of the driver: %s', (kinds) => {
  const jobs = kinds.split(' ').map((kind, index) => {
    const job = { uid: `${kind} ${index}`, attempt: 1, spec: specs[kind] } as unknown as Job
    return { index, job, wireAttempt: 1 }
  })
  const { payloads } = encodeJobs(jobs, 100_000, (url) => url)
  const taken: string[] = []
  const take = ({ uid }: { readonly uid: string }): void => void taken.push(uid)
  for (const payload of payloads) {
    const message = decode(payload) as DriverMessage
    if (message.kind === 'jobs') unpackJobs(message, take, take)
  }
  expect(taken).toEqual(jobs.map(({ job }) => job.uid))
})

it('functions are what they were, wherever the first unusual one stands', () => {
  const usual = specs['function'] as TaskSpec & { kind: 'function' }
  const other = { module: 'file:///other.js', name: 'other' }
  const differing: readonly (readonly [spec: TaskSpec, attempt: number])[] = [
    [{ ...usual, args: [1, { two: 2 }] }, 1],
    [{ ...usual, priority: 7 }, 1],
    [{ ...usual, timeoutSeconds: 3 }, 1],
    [{ ...usual, executable: 'other', definition: other }, 1],
    [usual, 4],
  ]
  for (const one of differing) {
    const all = [[usual, 1], [usual, 1], one, [usual, 1]] as const
    const jobs = all.map(([spec, wireAttempt], index) => ({
      index,
      job: { uid: `job ${index}`, attempt: 1, spec } as unknown as Job,
      wireAttempt,
    }))
    const found: unknown[] = []
    for (const payload of encodeJobs(jobs, 100_000, (url) => url).payloads) {
      const message = decode(payload) as DriverMessage & { kind: 'jobs' }
      unpackJobs(
        message,
        (job, spec) => found.push({ ...job, spec }),
        () => {},
      )
    }
    expect(found).toEqual(
      jobs.map(({ index, job, wireAttempt: attempt }) => {
        return { index, uid: job.uid, attempt, spec: job.spec }
      }),
    )
  }
})
