/** An agent of a simulation: the real `Agent` on a simulated node. */

import { Agent } from '../../src/cluster/io/agent/agent.ts'
import type { WorkFolder } from '../../src/cluster/io/agent/work-folder.ts'
import { UnpackedBundles } from '../../src/cluster/bundles/unpacked-bundles.ts'
import type { Log } from '../../src/foundation/log.ts'
import { SimulatedConnection } from './simulated-connection.ts'
import type { Executions } from './executions.ts'
import { SimulatedBackend } from './simulated-backend.ts'
import type { SeededRandom } from './seeded-random.ts'
import type { SimulatedNats } from './simulated-nats.ts'
import { SimulatedProcess, type VirtualTime } from './virtual-time.ts'

export interface SimulatedAgentOptions {
  readonly name: string
  readonly cores: number
  readonly token: string
  readonly maxPayload: number
  readonly time: VirtualTime
  readonly server: SimulatedNats
  readonly random: SeededRandom
  readonly executions: Executions
  readonly log: Log
  readonly trace: (text: string) => void
}

const startDelayMs = 500
const folder = { path: '/nowhere', async remove() {}, async close() {} } as unknown as WorkFolder
/** A node. Its agent may die, and start again under the same name. */
export class SimulatedAgent {
  readonly name: string
  readonly #options: SimulatedAgentOptions
  #process: SimulatedProcess
  #connection: SimulatedConnection | null = null
  #backend: SimulatedBackend | null = null
  #agent: Agent | null = null
  #starts = 0

  constructor(options: SimulatedAgentOptions) {
    this.#options = options
    this.name = options.name
    this.#process = new SimulatedProcess(options.time)
  }

  get process(): SimulatedProcess {
    return this.#process
  }

  get connection(): SimulatedConnection | null {
    return this.#connection
  }

  /** The sessions for which the agent still holds something. */
  get openSessions(): number {
    return this.#backend?.connections ?? 0
  }

  start(): void {
    const { time, server, executions, random, maxPayload } = this.#options
    const process = new SimulatedProcess(time)
    this.#process = process
    if (!server.isUp) {
      process.clock.after(startDelayMs, () => this.start())
      return
    }
    const name = `${this.name}/${++this.#starts}`
    const { cores } = this.#options
    const backend = new SimulatedBackend({ name, cores, process, executions })
    const own = { server, time, random: random.fork(), process, maxPayload }
    const connection = new SimulatedConnection(own)
    this.#connection = connection
    this.#backend = backend
    const retry = (): void => {
      connection.close().catch(() => {})
      if (this.#process === process) process.clock.after(startDelayMs, () => this.start())
    }
    this.#startAgent(connection, backend, process).catch(retry)
  }

  async #startAgent(
    broker: SimulatedConnection,
    backend: SimulatedBackend,
    { clock }: SimulatedProcess,
  ): Promise<void> {
    const { name, cores, token, log, trace } = this.#options
    const agent = await Agent.start({
      name,
      token,
      broker,
      facts: { cores, gpus: 0, memoryMb: 1000, labels: {} },
      rules: { only: null, allow: null },
      backend,
      folder,
      bundles: new UnpackedBundles('/nowhere', async () => {}),
      clock,
      log,
      refuse: () => null,
      watcher: null,
    })
    this.#agent = agent
    trace(`${name} is ready`)
    const restart = (): void => {
      trace(`${name} has left`)
      if (this.#agent === agent) clock.after(startDelayMs, () => this.start())
    }
    agent.left.then(restart, restart)
  }

  kill(): void {
    this.#process.kill()
    this.#connection?.break()
    this.#backend?.kill()
    this.#agent = null
    this.#backend = null
  }

  drain(): void {
    this.#process.do(() => this.#agent?.drain())
  }
}
