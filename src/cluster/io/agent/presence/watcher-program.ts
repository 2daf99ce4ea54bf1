/** The program of an agent's watcher. It exits with the agent, and reports a crash. */

import { sleep, systemClock } from '../../../../foundation/clock.ts'
import { messageOf } from '../../../../foundation/errors.ts'
import { connectToParent } from '../../../../runtime/child-program.ts'
import { poll } from '../../../../runtime/retry.ts'
import type { Broker, BrokerMessage } from '../../../broker/broker.ts'
import { connectToNats } from '../../../broker/nats.ts'
import { deriveKeys, type Keys, emptyHeader, open, seal } from '../../../wire/envelope.ts'
import type { Announcement, WatcherReport } from '../../../wire/messages.ts'
import { discoverySubject, watcherPingSubject, watcherSubject } from '../../../wire/subjects.ts'
import type { WatcherOutput, WatcherInput } from './agent-watcher.ts'

const answerTimeoutMs = 250
/** How many times an exit is reported. A driver that is reconnecting misses some reports. */
const exitReports = 10
const exitReportDelayMs = 500
/** How long an exit is reported. Later, most drivers have noticed that the agent is silent. */
const exitReportTimeoutMs = 10_000

const clock = systemClock

class Watcher {
  readonly #broker: Broker
  readonly #keys: Keys
  #agent: Announcement | null = null
  #heardMs = clock.monotonicMs()
  #isAgentGone = false
  #releaseName: () => void = () => {}

  constructor(broker: Broker, keys: Keys) {
    this.#broker = broker
    this.#keys = keys
    broker.subscribe(discoverySubject, (message) => {
      this.#handleDiscovery(message).catch(exitWithError)
    })
  }

  update(agent: Announcement): void {
    if (this.#agent === null) {
      const onPing = (message: BrokerMessage): void => this.#handlePing(message)
      this.#releaseName = this.#broker.subscribe(watcherPingSubject(agent.name), onPing)
    }
    this.#agent = agent
    this.#heardMs = clock.monotonicMs()
  }

  async reportExit(): Promise<void> {
    this.#isAgentGone = true
    // Releases the name first, so that a restarted agent can claim it immediately.
    this.#releaseName()
    let unsent = exitReports
    const report = (): boolean => {
      if (unsent > 0 && this.#broker.isConnected) this.#report('dead', 0)
      return this.#broker.isConnected && unsent-- === 0
    }
    await poll({ delayMs: exitReportDelayMs, timeoutMs: exitReportTimeoutMs }, report, { clock })
  }

  /** Reports the agent as silent if it does not answer the discovery request. */
  async #handleDiscovery({ subject, data }: BrokerMessage): Promise<void> {
    const nonce = this.#readNonce(subject, data)
    const askedMs = clock.monotonicMs()
    if (nonce === null || this.#heardMs >= askedMs) return
    await sleep(clock, answerTimeoutMs)
    if (!this.#isAgentGone && this.#heardMs < askedMs) this.#report('silent', nonce)
  }

  /** Answers for a suspended agent when another process tries to claim its name. */
  #handlePing(message: BrokerMessage): void {
    const { subject, data } = message
    const scope = this.#readNonce(subject, data)
    if (scope === null) return
    message.respond(seal(this.#keys.toDriver, subject, { ...emptyHeader, scope }, null))
  }

  #readNonce(subject: string, data: Uint8Array): number | null {
    try {
      return open(this.#keys.toAgent, subject, data).scope
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
    const header = { ...emptyHeader, scope: nonce }
    this.#broker.publish(watcherSubject, seal(this.#keys.toDriver, watcherSubject, header, report))
  }
}

let starting: Promise<Watcher> | null = null

const parent = connectToParent<WatcherInput, WatcherOutput>({
  onMessage: (message) => {
    if (message.kind === 'start') starting = start(message)
    else starting?.then((watcher) => watcher.update(message.agent)).catch(exitWithError)
  },
  onEnd: (isParentGone) => stopWatcher(isParentGone).catch(exitWithError),
})

async function start({ connection, token }: WatcherInput & { kind: 'start' }): Promise<Watcher> {
  try {
    // Logs nothing, because the agent's connection has the same problems and the agent logs them.
    const broker = await connectToNats({ ...connection, log: { warn() {} } })
    const watcher = new Watcher(broker, deriveKeys(token, null))
    parent.send({ kind: 'connected' })
    return watcher
  } catch (error) {
    return exitWithError(error)
  }
}

function exitWithError(error: unknown): never {
  process.stderr.write(messageOf(error))
  return process.exit(1)
}

async function stopWatcher(isAgentGone: boolean): Promise<void> {
  if (isAgentGone) await (await starting)?.reportExit()
  process.exit(0)
}
