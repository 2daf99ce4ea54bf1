/**
 * The envelope of every message between this process and its own children and threads. Nothing in
 * it is parsed by a schema: both ends are this package. The random channel id tells our messages
 * from those of user code that runs in the child and uses the same pipe.
 */

/** Both ends come from one installation; another version means that it was replaced meanwhile. */
export const channelVersion = 1

/** The environment variable that tells a child its channel; the child deletes it at once. */
export const channelVariable = 'TUTTI_CHANNEL'

/** `ready`: from the child, once. `end`: the parent asks the child to end. Else a batch. */
export type ChannelContent<T> = readonly T[] | 'ready' | 'end'

/** Version and channel once per batch, not per message. */
export type Envelope<T> = readonly [channel: number, version: number, content: ChannelContent<T>]

export function toEnvelope<T>(channel: number, content: ChannelContent<T>): Envelope<T> {
  return [channel, channelVersion, content]
}

/**
 * `null` for what does not belong to the channel. Throws for another version of our own. The type
 * of the messages is for the caller to know.
 */
export function openEnvelope(channel: number, received: unknown): ChannelContent<unknown> | null {
  if (!Array.isArray(received) || received[0] !== channel) return null
  const [, version, content] = received as unknown as Envelope<unknown>
  if (version === channelVersion) return content
  throw new Error(`the other end has version ${version} of the protocol, not ${channelVersion}`)
}

/**
 * User code may send what Node takes for its own, such as `{ cmd: 'NODE_HANDLE_ACK' }`: Node's
 * listener throws for it, at either end, and that would end the process.
 */
export function guardInternalMessages(end: NodeJS.EventEmitter, onIgnored: () => void): void {
  const own = end.rawListeners('internalMessage')
  end.removeAllListeners('internalMessage')
  end.on('internalMessage', (...received: unknown[]) => {
    try {
      for (const listener of own) Reflect.apply(listener, end, received)
    } catch {
      onIgnored()
    }
  })
}
