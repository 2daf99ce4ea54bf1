/**
 * The envelope of every message between this process and its own children and threads. It is not
 * validated by a schema, because both ends are this package. The random channel id distinguishes
 * these messages from those of user code, which uses the same pipe in the child.
 */

/** Both ends are of one installation; another version means that it was replaced meanwhile. */
export const channelVersion = 1

/** The environment variable that passes the channel id to a child, which deletes it at once. */
export const channelVariable = 'TUTTI_CHANNEL'

/** `ready`: sent once by the child. `end`: the parent asks the child to end. Otherwise a batch. */
export type ChannelContent<T> = readonly T[] | 'ready' | 'end'

/** Version and channel are sent once per batch, not per message. */
export type Envelope<T> = readonly [channel: number, version: number, content: ChannelContent<T>]

export function toEnvelope<T>(channel: number, content: ChannelContent<T>): Envelope<T> {
  return [channel, channelVersion, content]
}

/**
 * `null` for a message of another channel. Throws for another version of the protocol. The caller
 * knows the type of the messages.
 */
export function openEnvelope(channel: number, received: unknown): ChannelContent<unknown> | null {
  if (!Array.isArray(received) || received[0] !== channel) return null
  const [, version, content] = received as unknown as Envelope<unknown>
  if (version === channelVersion) return content
  throw new Error(`the other end has version ${version} of the protocol, not ${channelVersion}`)
}

/**
 * User code may send messages that Node treats as internal, such as `{ cmd: 'NODE_HANDLE_ACK' }`:
 * Node's listener at either end throws for them, which would end the process.
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
