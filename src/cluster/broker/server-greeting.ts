/** Finds out why a NATS server cannot be used and what a user can do about it. */

import { createConnection } from 'node:net'
import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { ServerAddress } from '../../runtime/server/node-servers.ts'

interface ServerInfo {
  readonly tls_required?: boolean
  /** Whether clients must present a certificate. */
  readonly tls_verify?: boolean
}

const greetingTimeoutMs = 1000
/** The maximum number of bytes to read. Greetings are shorter. */
const maxGreetingBytes = 64 * 1024

/**
 * Returns why the server will never accept this client; `null` if the server is only slow, or
 * requires TLS first. A server sends its refusal immediately, but the NATS client may miss it.
 */
export async function findRefusal(
  address: ServerAddress,
  hasCertificate: boolean,
  clock: Clock,
): Promise<string | null> {
  const { text, isClosed } = await readGreeting(address, clock)
  if (text === '') return null
  const info = parseServerInfo(text)
  if (info === null) return 'the program that answers there is not a NATS server'
  if (info.tls_verify === true && !hasCertificate) return 'it wants a certificate of the client'
  const refusal = /^-ERR '(.*)'/m.exec(text)?.[1]
  // This connection sends no login, so a time-out of the login is expected.
  if (refusal !== undefined && /authentication timeout/i.test(refusal)) return null
  const isEnded = isClosed && info.tls_required !== true
  return refusal ?? (isEnded ? 'it ends the connection' : null)
}

function parseServerInfo(greeting: string): ServerInfo | null {
  const [, json] = /^INFO (\{.*\})\s*\r\n/.exec(greeting) ?? []
  try {
    return json === undefined ? null : (JSON.parse(json) as ServerInfo)
  } catch {
    return null
  }
}

async function readGreeting(
  { host, port }: ServerAddress,
  clock: Clock,
): Promise<{ readonly text: string; readonly isClosed: boolean }> {
  const socket = createConnection({ host, port })
  const { promise: closed, resolve } = Promise.withResolvers<true>()
  let text = ''
  socket.setEncoding('utf8')
  socket.on('data', (chunk: string) => {
    text += chunk
    if (text.length > maxGreetingBytes) socket.destroy()
  })
  // An unreachable server has no greeting.
  socket.on('error', () => {})
  socket.on('close', () => resolve(true))
  const isClosed = await boundedWait(clock, greetingTimeoutMs, closed).catch(() => false)
  socket.destroy()
  return { text, isClosed }
}

/** The smallest sufficient payload limit. Larger messages are split. */
const minPayloadBytes = 4096

/** Returns the reason why a server with this payload limit cannot be used, or `null` if it can. */
export function checkPayloadLimit(maxPayload = minPayloadBytes): string | null {
  if (maxPayload >= minPayloadBytes) return null
  return `its \`max_payload\` is ${maxPayload} bytes, and at least ${minPayloadBytes} are needed`
}

const startHint = 'Start one with a configuration as in docs/cluster.md: nats-server -c server.conf'

const loginPattern = /authori[sz]ation|authentication/i

/** Hints for users, by the reason for the failure. The first match counts. */
const fixes: readonly (readonly [RegExp, string])[] = [
  [
    /authentication timeout/i,
    'The server is slow, or the link to it: raise `timeout` in its `authorization`.',
  ],
  [
    loginPattern,
    'The server has another token: compare the file of the token with `authorization` in the ' +
      'configuration of the server. If it has users instead, give `user` or `credentials` ' +
      '(--user, --credentials).',
  ],
  [/altnames/, 'The certificate of the server lacks this host: use a name that it has in the URL.'],
  [
    /self[- ]signed|issuer certificate|verify the first certificate/,
    'Give the certificate of the authority that has signed that of the server as `tls.ca` ' +
      '(--tls-ca).',
  ],
  [
    /does not support 'tls'/,
    'The server has no TLS: add `tls` to its configuration, or use nats:// in the URL.',
  ],
  [/refused/i, `No server listens there: check host and port of the URL. ${startHint}`],
  [/does not answer/, `Check host and port of the URL, and the firewall between. ${startHint}`],
  [/certificate of the client/, 'Give `tls.cert` and `tls.key` (--tls-cert, --tls-key).'],
  [/max_payload/, 'Raise `max_payload` in the configuration of the server.'],
  [/maximum connections/, 'Raise `max_connections` in the configuration of the server.'],
  [/not a NATS server/, `Check the port of the URL: another program has it. ${startHint}`],
  [/ENOTFOUND|EAI_AGAIN/, 'Check the name of the host in the URL.'],
]

export function suggestFix(
  why: string,
  { credentials, user }: { readonly credentials?: string; readonly user?: string },
): string | undefined {
  const [reason, fix] = fixes.find(([pattern]) => pattern.test(why)) ?? []
  if (reason !== loginPattern) return fix
  if (credentials !== undefined) return 'The server does not know these credentials.'
  return user === undefined ? fix : 'Compare user and password with those of the server.'
}
