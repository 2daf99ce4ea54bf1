/**
 * Destroys the sockets of a call that fails. The NATS client gives up a server that does not
 * answer, but not the socket that is still connecting. That socket would keep the process alive
 * until the operating system gives up, too, after seconds or minutes.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'

/** Node publishes every client socket here, synchronously in the call that creates it. */
const socketChannel = 'net.client.socket'

/** The result of a call. `hasReceived`: its sockets had received data from the other side. */
export type SocketCall<T> =
  | { readonly value: T }
  | { readonly error: unknown; readonly hasReceived: boolean }

/** Leaves other sockets alone that this process opens in the meantime. */
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
