/** Reads a NATS server's greeting, to find out why the client could not connect in time. */

import { createConnection } from 'node:net'
import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'

export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** A part of the information that a server sends about itself. */
interface ServerInfo {
  readonly tls_required?: boolean
  /** Whether clients must present a certificate. */
  readonly tls_verify?: boolean
}

const greetingMs = 1000
/** Greetings are shorter; reading stops beyond this. */
const mostBytes = 64 * 1024

/**
 * Returns why the server will never accept this client; `null` if it is merely slow, or requires
 * TLS first. A server that refuses says so at once, but the client may miss it.
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
  // The server's time limit for authentication or TLS: this connection attempts neither.
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

/** Returns what arrives within a second, or until the server ends the connection. */
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
  // A server that cannot be reached has no greeting.
  socket.on('error', () => {})
  socket.on('close', () => resolve(true))
  const isClosed = await boundedWait(clock, greetingMs, closed).catch(() => false)
  socket.destroy()
  return { text, isClosed }
}
