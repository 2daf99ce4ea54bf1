import { createHash } from 'node:crypto'
import { inspect } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { raise, thrownNames } from './fixtures/value-tasks.ts'
import { sharedCluster } from './local-cluster.ts'

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

/** Shows a long text as its digest, because its difference would be unreadable. */
function shorten(value: unknown): unknown {
  if (typeof value !== 'string' || value.length < 100_000) return value
  const digest = createHash('sha256').update(value).digest('hex')
  return `${value.length} characters, ${digest}`
}

/** All that a program can read of it. */
function describeThrown(thrown: unknown, depth = 0): unknown {
  if (!(thrown instanceof Error)) {
    return shorten(inspect(thrown, { depth: null, maxStringLength: null }))
  }
  const own = Object.getOwnPropertyNames(thrown).toSorted()
  const parts = own.map((key) => {
    const part: unknown = Reflect.get(thrown, key)
    return [
      key,
      isObject(part) && depth < 4 ? describeThrown(part, depth + 1) : shorten(part),
    ] as const
  })
  const { name, message } = thrown
  const { code } = thrown as { readonly code?: unknown }
  const types = [DOMException, TypeError].filter((type) => thrown instanceof type)
  const type = thrown.constructor.name
  return {
    type,
    types,
    name,
    message: shorten(message),
    code,
    own,
    parts: Object.fromEntries(parts),
  }
}

describe('what a function throws', () => {
  const connect = sharedCluster({ agents: 1, cores: 1 })
  let sessions: Promise<readonly [Session, Session]> | null = null
  const open = async (): Promise<readonly [Session, Session]> => [
    new Session([await ConcurrentBackend.create({ workers: 1 })]),
    new Session([await connect()]),
  ]
  afterAll(async () => {
    for (const session of (await sessions) ?? []) await session.close()
  })

  it.each(thrownNames)('a thrown value is the same on a cluster as locally: %s', async (name) => {
    sessions ??= open()
    const [local, cluster] = await Promise.all(
      (await sessions).map(async (session) => {
        const seen: unknown[] = []
        const onError = (error: unknown): boolean => {
          seen.push(describeThrown(error))
          return false
        }
        const retries = { times: 1, if: onError }
        const task = new ComputeTask({ function: raise, args: [name], retries })
        await session.submitTasks([task])
        await session.waitTasks([task])
        const text = shorten(task.error?.message.replace(task.uid, ''))
        return { seen, text, cause: describeThrown(task.error?.cause) }
      }),
    )
    expect(cluster).toEqual(local)
    expect(cluster?.seen).toHaveLength(1)
  })
})
