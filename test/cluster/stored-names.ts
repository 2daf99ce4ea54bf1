/** The content of the broker's store: streams, and objects in them. */

import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { onTestFinished } from 'vitest'
import { deriveKeys, type Keys } from '../../src/cluster/wire/envelope.ts'
import { sessionSubjects } from '../../src/cluster/wire/subjects.ts'
import { token, useOf } from './test-token.ts'

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
  const { stream } = sessionSubjects(useOf(sessionId))
  return (await storedNames(servers)).filter((name) => name.includes(stream))
}

/** The keys of the current run of a session. */
export async function keysOfSession(servers: string, sessionId: string): Promise<Keys> {
  const connection = await connect({ servers, token })
  try {
    const manager = await jetstreamManager(connection)
    const { config } = await manager.streams.info(sessionSubjects(useOf(sessionId)).stream)
    return deriveKeys(token, { ...useOf(sessionId), run: config.description ?? '' })
  } finally {
    await connection.close()
  }
}

/** How many messages with ends the streams of all sessions have. */
export async function storedEnds(servers: string): Promise<number> {
  const connection = await connect({ servers, token })
  try {
    const manager = await jetstreamManager(connection)
    let count = 0
    for (const name of await storedNames(servers)) {
      const { state } = await manager.streams.info(name, { subjects_filter: '*.session.*.ends.>' })
      for (const messages of Object.values(state.subjects ?? {})) count += messages
    }
    return count
  } finally {
    await connection.close()
  }
}

/** Pieces of the objects of all sessions, and consumers: what reading and storing leaves. */
export async function storedObjects(servers: string): Promise<string[]> {
  const connection = await connect({ servers, token })
  try {
    const manager = await jetstreamManager(connection)
    const found: string[] = []
    for (const name of await storedNames(servers)) {
      const { state } = await manager.streams.info(name, {
        subjects_filter: '*.session.*.objects.>',
      })
      found.push(...Object.keys(state.subjects ?? {}))
      for await (const consumer of manager.consumers.list(name)) found.push(consumer.name)
    }
    return found
  } finally {
    await connection.close()
  }
}

/** How often each message with ends was read from now on, by its number in the stream. */
export async function watchReads(servers: string): Promise<ReadonlyMap<string, number>> {
  const connection = await connect({ servers, token })
  onTestFinished(() => connection.close())
  const reads = new Map<string, number>()
  connection.subscribe('_INBOX.>', {
    callback: (_, { subject, reply = '' }) => {
      if (!reply.startsWith('$JS.ACK.') || !subject.includes('.ends.')) return
      const sequence = reply.split('.')[5] ?? ''
      reads.set(sequence, (reads.get(sequence) ?? 0) + 1)
    },
  })
  await connection.flush()
  return reads
}

/** Fills it with this many bytes, or completely. Returns a function that makes room again. */
export async function fillStore(
  servers: string,
  bytes: number,
  access: { readonly token: string } | { readonly user: string; readonly pass: string } = { token },
): Promise<() => Promise<void>> {
  const connection = await connect({ servers, ...access })
  onTestFinished(() => connection.close())
  const manager = await jetstreamManager(connection)
  await manager.streams.add({ name: 'other', subjects: ['other'] })
  const message = new Uint8Array(100_000)
  let isFull = false
  for (let stored = 0; stored < bytes && !isFull; stored += message.length) {
    isFull = await jetstream(connection)
      .publish('other', message)
      .then(
        () => false,
        () => true,
      )
  }
  return async () => void (await manager.streams.delete('other'))
}
