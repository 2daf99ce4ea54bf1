/** A link to the broker that can be cut: its connections are reset, and new ones are refused. */

import { connect, createServer, type Server, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

export class LinkProxy {
  readonly url: string
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isCut = false

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

  #accept(client: Socket, targetPort: number): void {
    if (this.#isCut) {
      client.resetAndDestroy()
      return
    }
    const upstream = connect(targetPort, '127.0.0.1')
    this.#join(client, upstream)
    this.#join(upstream, client)
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
