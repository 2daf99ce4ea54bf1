/**
 * Requests to agents and their answers. An answer that exceeds the broker's limit is split into
 * several messages. If one of them is lost, the whole answer is lost.
 */

import type { Broker } from '../broker/broker.ts'
import { decode, encode } from './codec.ts'
import { type Key, type Keys, emptyHeader, newNonce, open, seal, sealBytes } from './envelope.ts'

export function sealAnswer(
  key: Key,
  subject: string,
  nonce: number,
  answer: unknown,
  limitBytes: number,
): readonly Buffer[] {
  const payload = encode(answer)
  const header = { ...emptyHeader, scope: nonce }
  if (payload.length <= limitBytes) return [sealBytes(key, subject, header, payload)]
  const count = Math.ceil(payload.length / partBytes(limitBytes))
  return Array.from({ length: count }, (_, index) => {
    const from = index * partBytes(limitBytes)
    const part = payload.subarray(from, from + partBytes(limitBytes))
    return seal(key, subject, { ...header, number: index + 1, acknowledged: count }, part)
  })
}

/** The number of bytes that serialization adds to a part. */
const partOverheadBytes = 64
const partBytes = (limitBytes: number): number => limitBytes - partOverheadBytes

/**
 * Sends a signed request, and resolves with the payload of its answer. Ignores all messages but a
 * signed answer to this request, because any client may send messages.
 */
export async function requestAnswer(
  broker: Broker,
  { toAgent, toDriver }: Keys,
  subject: string,
  request: unknown,
  timeoutMs: number,
): Promise<unknown> {
  const nonce = newNonce()
  const parts = new Map<number, Uint8Array>()
  let answer: unknown
  const addPart = (data: Uint8Array): boolean => {
    try {
      const { scope, number, acknowledged: count, payload } = open(toDriver, subject, data)
      if (scope !== nonce) return false
      answer = payload
      if (number === 0) return true
      parts.set(number, payload as Uint8Array)
      if (parts.size < count) return false
      const all = Array.from({ length: count }, (_, at) => parts.get(at + 1) ?? new Uint8Array())
      answer = decode(Buffer.concat(all))
      return true
    } catch {
      return false
    }
  }
  const data = seal(toAgent, subject, { ...emptyHeader, scope: nonce }, request)
  await broker.requestAccepted(subject, data, timeoutMs, addPart)
  return answer
}
