/**
 * Ends the sockets of a call that fails. The client of NATS gives up a server that does not answer,
 * but not the socket that is still connecting, which keeps the process alive until the system gives
 * that up, too: after seconds or minutes.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'

/** Of Node: every socket of a client, in the call that makes it. */
const socketChannel = 'net.client.socket'

/** How a call ended; `hasReceived`: its sockets had got something from the other side. */
export type SocketCall<T> =
  | { readonly value: T }
  | { readonly error: unknown; readonly hasReceived: boolean }

/** Other sockets of the process, which are opened meanwhile, are not touched. */
export async function endSocketsOnFailure<T>(call: () => Promise<T>): Promise<SocketCall<T>> {
  const sockets: Socket[] = []
  const calls = new AsyncLocalStorage<Socket[]>()
  const collect = (message: unknown): void => {
    calls.getStore()?.push((message as { readonly socket: Socket }).socket)
  }
  subscribe(socketChannel, collect)
  try {
    return { value: await calls.run(sockets, call) }
  } catch (error) {
    const hasReceived = sockets.some((socket) => socket.bytesRead > 0)
    for (const socket of sockets) socket.destroy()
    return { error, hasReceived }
  } finally {
    unsubscribe(socketChannel, collect)
    calls.disable()
  }
}
