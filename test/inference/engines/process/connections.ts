/** Connections to a server and to its child: they close when the processes end. */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { InferenceEngine } from '../../../../src/inference/generation/inference-engine.ts'

/** The port of the fixture server that an engine has started. */
export async function portOf(engine: InferenceEngine): Promise<number> {
  const [port = 0] = await engine.tokenize('port')
  return port
}

export async function page(port: number, path: string): Promise<unknown> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`)
  return response.json()
}

/** Connects to the fixture server and to its child; the result waits until both have ended. */
export async function holdAll(port: number): Promise<() => Promise<void>> {
  const child = Number(await page(port, '/child'))
  const held = [await hold(port), await hold(child)]
  return async () => {
    for (const socket of held) if (!socket.closed) await once(socket, 'close')
  }
}

async function hold(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.on('error', () => {})
  return socket.resume()
}
