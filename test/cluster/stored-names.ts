/** What the broker's store has of a session: its stream and its objects. */

import { jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { sessionSubjects } from '../../src/cluster/wire/subjects.ts'
import { token } from './test-token.ts'

/** The names of all streams of the server. */
async function storedNames(servers: string): Promise<string[]> {
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
