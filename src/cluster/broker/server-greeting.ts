/** What a server of NATS says first, to anybody: why the client could not connect in time. */

import { createConnection } from 'node:net'
import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'

export interface ServerAddress {
  readonly host: string
  readonly port: number
}

const greetingMs = 1000
/** A greeting is shorter. */
const mostBytes = 64 * 1024

/**
 * Why the server lets nobody in, or `null`: it is slow, or speaks through TLS alone. A server that
 * refuses says so at once, but the client may not hear it.
 */
export async function findRefusal(address: ServerAddress, clock: Clock): Promise<string | null> {
  const { text, isClosed } = await readGreeting(address, clock)
  if (text === '') return null
  if (!/^INFO \{.*\}\s*\r\n/.test(text)) return 'what answers there is no server of NATS'
  const refusal = /^-ERR '(.*)'/m.exec(text)?.[1]
  // For whoever is slow to say who it is: this connection never does.
  if (refusal !== undefined && /authentication timeout/i.test(refusal)) return null
  return refusal ?? (isClosed ? 'it ends the connection' : null)
}

/** What comes within a second, or until the server ends the connection. */
async function readGreeting(
  { host, port }: ServerAddress,
  clock: Clock,
): Promise<{ readonly text: string; readonly isClosed: boolean }> {
  const socket = createConnection({ host, port })
  const { promise: closed, resolve } = Promise.withResolvers<true>()
  let text = ''
  socket.setEncoding('utf8')
  socket.on('data', (piece: string) => {
    text += piece
    if (text.length > mostBytes) socket.destroy()
  })
  // One that cannot be reached says nothing.
  socket.on('error', () => {})
  socket.on('close', () => resolve(true))
  const isClosed = await boundedWait(clock, greetingMs, closed).catch(() => false)
  socket.destroy()
  return { text, isClosed }
}
