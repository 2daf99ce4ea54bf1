/** A driver of a simulation: the real `DriverSession` below a simulated session. */

import { AgentDirectory, type KnownAgent } from '../../src/cluster/io/driver/agent-directory.ts'
import { DriverSession } from '../../src/cluster/io/driver/driver-session.ts'
import { noHeldNodes } from '../../src/cluster/protocol/placement/held-nodes.ts'
import { deriveKeys } from '../../src/cluster/wire/envelope.ts'
import { messageOf } from '../../src/foundation/errors.ts'
import type { Log } from '../../src/foundation/log.ts'
import { SimulatedConnection } from './simulated-connection.ts'
import type { SimulatedNats } from './simulated-nats.ts'
import { sessionId, SimulatedSession, type SimulatedSessionOptions } from './simulated-session.ts'
import { SimulatedProcess, type VirtualTime } from './virtual-time.ts'

export interface DriverTimes {
  readonly agentTimeoutSeconds: number
  readonly lossSeconds: number
  readonly ownerTtlSeconds: number
}

export interface SimulatedDriverOptions extends DriverTimes, SimulatedSessionOptions {
  readonly token: string
  readonly maxPayload: number
  readonly time: VirtualTime
  readonly server: SimulatedNats
  readonly log: Log
}

export const resultTtlSeconds = 86_400

export class SimulatedDriver {
  readonly process: SimulatedProcess
  readonly connection: SimulatedConnection
  readonly #session: SimulatedSession
  #isReleased = false

  constructor(options: SimulatedDriverOptions) {
    const { time, server, random, token, log, maxPayload, lossSeconds } = options
    this.process = new SimulatedProcess(time)
    const { clock } = this.process
    const common = { server, time, random: random.fork(), process: this.process, maxPayload }
    const broker = new SimulatedConnection(common)
    this.connection = broker
    const keys = deriveKeys(token, null)
    const directory = new AgentDirectory({ broker, keys, clock, log, lossSeconds })
    const session = new SimulatedSession(options)
    this.#session = session
    directory.listen({
      agentJoined: ({ announcement: { name, start } }) => session.noteNode(name, start),
      agentDraining: () => {},
      agentLost: () => {},
    })
    const connection = new DriverSession({
      ...options,
      use: { sessionId, backend: 'cluster' },
      session: {
        begun: Promise.resolve(session.earlier),
        flushed: () => new Promise((resolve) => session.afterFlush(resolve)),
      },
      listener: session.listener,
      broker,
      directory,
      clock,
      resultTtlSeconds,
      secondsLeft: () => Infinity,
      explainNoAgent: null,
      horizons: [],
      modules: 'shared',
      held: noHeldNodes,
      toNode: ({ announcement: { name } }: KnownAgent) => ({ nodeId: name }),
      onReleased: () => {},
    })
    const finish = (): void => {
      directory.close()
      broker.close().catch(() => {})
      this.#isReleased = true
    }
    const onDone = (): void => {
      connection.release('session closed').then(finish, (error: unknown) => {
        options.onViolation(`the session cannot be closed: ${messageOf(error)}`)
      })
    }
    const findStart = (name: string): number | undefined => directory.find(name)?.announcement.start
    session.start({ process: this.process, connection, findStart, onDone })
    directory.discover()
  }

  /** Whether every task has ended and is recorded, and the session is closed. */
  get isFinished(): boolean {
    return this.#isReleased
  }

  get openTasks(): readonly string[] {
    return this.#session.openTasks
  }

  kill(): void {
    this.process.kill()
    this.connection.break()
  }

  cancel(uid: string): void {
    this.#session.cancel(uid)
  }
}
