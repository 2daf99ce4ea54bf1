/**
 * A link to the broker that can be cut, so that its connections are reset and new ones are refused,
 * or made slow for what goes to the broker.
 */

import { connect, createServer, type Server, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

export class LinkProxy {
  readonly url: string
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isCut = false
  #bytesPerSecond = Infinity

  /** Ends with the test. */
  static async start(target: string): Promise<LinkProxy> {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new LinkProxy(server, Number(new URL(target).port))
  }

  private constructor(server: Server, targetPort: number) {
    const address = server.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    this.#server = server
    this.url = `nats://127.0.0.1:${port}`
    server.on('connection', (client) => this.#accept(client, targetPort))
    onTestFinished(() => this.#close())
  }

  cut(): void {
    this.#isCut = true
    for (const socket of this.#sockets) socket.resetAndDestroy()
  }

  mend(): void {
    this.#isCut = false
  }

  /** Messages to the broker take at least this long from now on. */
  slowDown(bytesPerSecond: number): void {
    this.#bytesPerSecond = bytesPerSecond
  }

  #accept(client: Socket, targetPort: number): void {
    if (this.#isCut) {
      client.resetAndDestroy()
      return
    }
    const upstream = connect(targetPort, '127.0.0.1')
    this.#join(client, upstream)
    this.#join(upstream, client)
    client.on('data', ({ length }) => {
      if (this.#bytesPerSecond === Infinity) return
      client.pause()
      setTimeout(() => client.resume(), (length / this.#bytesPerSecond) * 1000)
    })
  }

  #join(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    from.pipe(to)
    from.on('error', () => to.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      to.destroy()
    })
  }

  #close(): void {
    this.cut()
    this.#server.close()
  }
}
