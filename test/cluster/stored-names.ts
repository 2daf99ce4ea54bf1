/** What the broker's store has: streams, and objects. */

import { jetstreamManager } from '@nats-io/jetstream'
import { Objm } from '@nats-io/obj'
import { connect } from '@nats-io/transport-node'
import { sessionSubjects } from '../../src/cluster/wire/subjects.ts'
import { token } from './test-token.ts'

/** The names of all streams of the server. */
export async function storedNames(servers: string): Promise<string[]> {
  const connection = await connect({ servers, token })
  try {
    const manager = await jetstreamManager(connection)
    const names: string[] = []
    for await (const name of manager.streams.names()) names.push(name)
    return names.toSorted()
  } finally {
    await connection.close()
  }
}

export async function namesOfSession(servers: string, sessionId: string): Promise<string[]> {
  const { stream } = sessionSubjects(sessionId)
  return (await storedNames(servers)).filter((name) => name.includes(stream))
}

/** The objects of all sessions. */
export async function storedObjects(servers: string): Promise<string[]> {
  const connection = await connect({ servers, token })
  try {
    const names: string[] = []
    for (const stream of await storedNames(servers)) {
      if (!stream.startsWith('OBJ_')) continue
      const store = await new Objm(connection).open(stream.slice(4))
      for (const { name, deleted } of await store.list()) if (!deleted) names.push(name)
    }
    return names
  } finally {
    await connection.close()
  }
}
