import { describe, expect, it } from 'vitest'
import { AgentDirectory } from '../../../src/cluster/driver/agent-directory.ts'
import { deriveKeys, noHeader, seal } from '../../../src/cluster/wire/envelope.ts'
import type { WatcherReport } from '../../../src/cluster/wire/messages.ts'
import {
  announcementSubject,
  discoverySubject,
  watcherSubject,
} from '../../../src/cluster/wire/subjects.ts'
import type { Clock } from '../../../src/foundation/clock.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { MemoryBroker } from '../memory-broker.ts'
import { agentOf } from './links.ts'

const keys = deriveKeys('a token of the test', null)

/** A driver that may be stopped: time passes for it, and its timers come late. */
class Driver {
  readonly broker = new MemoryBroker()
  readonly told: string[] = []
  readonly directory: AgentDirectory
  readonly #manual = new ManualClock()
  #stoppedMs = 0
  #announcements = 0

  constructor(lossSeconds: number) {
    const manual = this.#manual
    const clock: Clock = {
      now: () => manual.now(),
      monotonicMs: () => manual.monotonicMs() + this.#stoppedMs,
      after: (ms, callback) => manual.after(ms, callback),
      nextTurn: (callback) => manual.nextTurn(callback),
    }
    const log = { warn() {} }
    this.directory = new AgentDirectory({ broker: this.broker, keys, clock, log, lossSeconds })
    this.directory.listen({
      agentJoined: ({ announcement }) => void this.told.push(`joined ${announcement.name}`),
      agentDraining: ({ announcement }) => void this.told.push(`draining ${announcement.name}`),
      agentLost: (_, reason) => void this.told.push(`lost: ${reason}`),
    })
  }

  pass(ms: number): Promise<void> {
    return this.#manual.advance(ms)
  }

  stop(ms: number): void {
    this.#stoppedMs += ms
  }

  async announce(epoch = 1): Promise<void> {
    const { announcement } = agentOf('only')
    const header = { ...noHeader, epoch, number: ++this.#announcements }
    const data = seal(keys.toDriver, announcementSubject, header, { ...announcement, epoch })
    this.broker.publish(announcementSubject, data)
    await this.pass(0)
  }

  report(state: WatcherReport['state'], nonce = 0): void {
    const agent = agentOf('only').announcement
    const report: WatcherReport = { kind: 'watcher-report', state, agent, silentSeconds: 4 }
    const header = { ...noHeader, epoch: nonce }
    this.broker.publish(watcherSubject, seal(keys.toDriver, watcherSubject, header, report))
  }
}

describe('a driver that was stopped or busy', () => {
  it('does not count that time as the silence of an agent', async () => {
    const driver = new Driver(1)
    await driver.announce()
    for (let stops = 0; stops < 5; stops++) {
      // Its timer comes late by more than an agent may be silent.
      driver.stop(1200)
      await driver.pass(250)
      await driver.announce()
    }
    expect(driver.told).toEqual(['joined only'])
  })

  it('again and again still loses an agent that says nothing', async () => {
    const driver = new Driver(1)
    await driver.announce()
    for (let stops = 0; stops < 6; stops++) {
      driver.stop(5000)
      await driver.pass(250)
    }
    expect(driver.told).toEqual(['joined only', 'lost: it was silent for 1 s'])
  })
})

describe('the watcher of an agent', () => {
  it('tells the end of its process: it is lost once, whatever it announces late', async () => {
    const driver = new Driver(3600)
    await driver.announce()
    driver.report('dead')
    driver.report('dead')
    await driver.announce()
    expect(driver.told).toEqual(['joined only', 'lost: its process is gone'])
    // Its next start is another agent.
    await driver.announce(2)
    driver.report('dead')
    expect(driver.told.slice(2)).toEqual(['joined only'])
  })

  it('tells of silence to whoever has asked, and not by a report that is sent again', () => {
    const driver = new Driver(3600)
    const nonces: number[] = []
    driver.broker.subscribe(discoverySubject, ({ data }) => {
      nonces.push(Buffer.from(data).readDoubleLE(33))
    })
    driver.directory.discover()
    driver.report('silent', nonces[0])
    expect(driver.directory.silent.map(({ silentSeconds }) => silentSeconds)).toEqual([4])
    driver.directory.discover()
    driver.report('silent', nonces[0])
    expect(driver.directory.silent).toEqual([])
  })
})
