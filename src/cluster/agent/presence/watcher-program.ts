/** The program of an agent's watcher. It exits with the agent, and reports a crash of the agent. */

import { sleep, systemClock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { connectToParent } from '../../../runtime/child-program.ts'
import { poll } from '../../../runtime/retry.ts'
import type { Broker, BrokerMessage } from '../../broker/broker.ts'
import { connectToNats } from '../../broker/nats.ts'
import { deriveKeys, type Keys, noHeader, open, seal } from '../../wire/envelope.ts'
import type { Announcement, WatcherReport } from '../../wire/messages.ts'
import { discoverySubject, watcherOf, watcherSubject } from '../../wire/subjects.ts'
import type { FromWatcher, ToWatcher } from './agent-watcher.ts'

/** An agent that is not suspended is heard within this time after a discovery request. */
const answerMs = 250
/** The agent's exit is reported several times, because a driver may be reconnecting. */
const exitReports = 10
const exitReportMs = 500
/** After this time, drivers have noticed the silence, unless their `lossSeconds` is longer. */
const giveUpMs = 10_000

const clock = systemClock

class Watcher {
  readonly #broker: Broker
  readonly #keys: Keys
  #agent: Announcement | null = null
  #heardMs = clock.monotonicMs()
  #isAgentGone = false
  #freeName: () => void = () => {}

  constructor(broker: Broker, keys: Keys) {
    this.#broker = broker
    this.#keys = keys
    broker.subscribe(discoverySubject, (message) => {
      this.#takeDiscovery(message).catch(exitWith)
    })
  }

  update(agent: Announcement): void {
    if (this.#agent === null) {
      const onPing = (message: BrokerMessage): void => this.#takePing(message)
      this.#freeName = this.#broker.subscribe(watcherOf(agent.name), onPing)
    }
    this.#agent = agent
    this.#heardMs = clock.monotonicMs()
  }

  async reportExit(): Promise<void> {
    this.#isAgentGone = true
    // First, so that a restarted agent need not wait for an answer.
    this.#freeName()
    let unsent = exitReports
    const report = (): boolean => {
      if (unsent > 0 && this.#broker.isConnected) this.#report('dead', 0)
      return this.#broker.isConnected && unsent-- === 0
    }
    await poll({ delayMs: exitReportMs, timeoutMs: giveUpMs }, report, { clock })
  }

  /** The agent gets the same request. A driver that hears the agent ignores this report. */
  async #takeDiscovery({ subject, data }: BrokerMessage): Promise<void> {
    const nonce = this.#nonceOf(subject, data)
    const askedMs = clock.monotonicMs()
    if (nonce === null || this.#heardMs >= askedMs) return
    await sleep(clock, answerMs)
    if (!this.#isAgentGone && this.#heardMs < askedMs) this.#report('silent', nonce)
  }

  /** Answers for a suspended agent when another process tries to claim its name. */
  #takePing(message: BrokerMessage): void {
    const { subject, data } = message
    const epoch = this.#nonceOf(subject, data)
    if (epoch === null) return
    message.respond(seal(this.#keys.toDriver, subject, { ...noHeader, epoch }, null))
  }

  #nonceOf(subject: string, data: Uint8Array): number | null {
    try {
      return open(this.#keys.toAgent, subject, data).epoch
    } catch {
      // The agent gets the same message and counts it as refused.
      return null
    }
  }

  #report(state: WatcherReport['state'], nonce: number): void {
    if (this.#agent === null) return
    const silentSeconds = (clock.monotonicMs() - this.#heardMs) / 1000
    const report: WatcherReport = {
      kind: 'watcher-report',
      state,
      agent: this.#agent,
      silentSeconds,
    }
    const header = { ...noHeader, epoch: nonce }
    this.#broker.publish(watcherSubject, seal(this.#keys.toDriver, watcherSubject, header, report))
  }
}

let starting: Promise<Watcher> | null = null

const parent = connectToParent<ToWatcher, FromWatcher>({
  onMessage: (message) => {
    if (message.kind === 'start') starting = start(message)
    else starting?.then((watcher) => watcher.update(message.agent)).catch(exitWith)
  },
  onEnd: (isParentGone) => end(isParentGone).catch(exitWith),
})

async function start({ connection, token }: ToWatcher & { kind: 'start' }): Promise<Watcher> {
  try {
    // Logs nothing: the agent's connection has the same problems, and the agent warns.
    const broker = await connectToNats({ ...connection, log: { warn() {} } })
    const watcher = new Watcher(broker, deriveKeys(token, null))
    parent.send({ kind: 'connected' })
    return watcher
  } catch (error) {
    return exitWith(error)
  }
}

/** The agent reports what is written to stderr. */
function exitWith(error: unknown): never {
  process.stderr.write(messageOf(error))
  return process.exit(1)
}

async function end(isAgentGone: boolean): Promise<void> {
  if (isAgentGone) await (await starting)?.reportExit()
  process.exit(0)
}
