/** What a server of NATS says first, to anybody: why the client could not connect in time. */

import { createConnection } from 'node:net'
import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'

export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** Of what a server tells about itself. */
interface ServerInfo {
  readonly tls_required?: boolean
  /** Whether clients have to show a certificate. */
  readonly tls_verify?: boolean
}

const greetingMs = 1000
/** A greeting is shorter. */
const mostBytes = 64 * 1024

/**
 * Why the server will never let this client in; `null` if it is slow, or speaks through TLS alone.
 * A server that refuses says so at once, but the client may not hear it.
 */
export async function findRefusal(
  address: ServerAddress,
  hasCertificate: boolean,
  clock: Clock,
): Promise<string | null> {
  const { text, isClosed } = await readGreeting(address, clock)
  if (text === '') return null
  const info = infoOf(text)
  if (info === null) return 'the program that answers there is not a NATS server'
  if (info.tls_verify === true && !hasCertificate) return 'it wants a certificate of the client'
  const refusal = /^-ERR '(.*)'/m.exec(text)?.[1]
  // For whoever is slow to say who it is, or to begin with TLS: this connection never does.
  if (refusal !== undefined && /authentication timeout/i.test(refusal)) return null
  const isEnded = isClosed && info.tls_required !== true
  return refusal ?? (isEnded ? 'it ends the connection' : null)
}

function infoOf(greeting: string): ServerInfo | null {
  const [, json] = /^INFO (\{.*\})\s*\r\n/.exec(greeting) ?? []
  try {
    return json === undefined ? null : (JSON.parse(json) as ServerInfo)
  } catch {
    return null
  }
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
