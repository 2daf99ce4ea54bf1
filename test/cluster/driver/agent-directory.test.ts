import { describe, expect, it } from 'vitest'
import { AgentDirectory } from '../../../src/cluster/driver/agent-directory.ts'
import { deriveKeys, emptyHeader, open, seal } from '../../../src/cluster/wire/envelope.ts'
import type { WatcherReport } from '../../../src/cluster/wire/messages.ts'
import {
  agentSubject,
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
  /** The start that answers; `null` for none. */
  #living: number | null = 1

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
    this.broker.subscribe(agentSubject('only'), (message) => {
      if (this.#living === null) return
      const { subject, data } = message
      const { epoch } = open(keys.toAgent, subject, data)
      const nowMs = clock.monotonicMs()
      const pong = { kind: 'pong', epoch: this.#living, receivedMs: nowMs, sentMs: nowMs }
      message.respond(seal(keys.toDriver, subject, { ...emptyHeader, epoch }, pong))
    })
  }

  /** Its process ends, and another one begins, or none. */
  restart(living: number | null): void {
    this.#living = living
  }

  pass(ms: number): Promise<void> {
    return this.#manual.advance(ms)
  }

  stop(ms: number): void {
    this.#stoppedMs += ms
  }

  async announce(epoch = 1): Promise<Uint8Array> {
    const { announcement } = agentOf('only')
    const header = { ...emptyHeader, epoch, number: ++this.#announcements }
    const data = seal(keys.toDriver, announcementSubject, header, { ...announcement, epoch })
    await this.send(data)
    return data
  }

  async send(announcement: Uint8Array): Promise<void> {
    this.broker.publish(announcementSubject, announcement)
    await this.pass(0)
  }

  report(state: WatcherReport['state'], nonce = 0): void {
    const agent = agentOf('only').announcement
    const report: WatcherReport = { kind: 'watcher-report', state, agent, silentSeconds: 4 }
    const header = { ...emptyHeader, epoch: nonce }
    this.broker.publish(watcherSubject, seal(keys.toDriver, watcherSubject, header, report))
  }
}

describe('a driver that was stopped or busy', () => {
  it('a driver that was busy does not count that time as silence of an agent', async () => {
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

  it('a driver that was busy does not count that time in its search for an agent', async () => {
    const driver = new Driver(1)
    const located = driver.directory.locate('only')
    await driver.pass(500)
    driver.stop(5000)
    await driver.pass(100)
    await driver.announce()
    await driver.pass(100)
    expect((await located)?.announcement.name).toBe('only')
  })

  it('a driver looks for a silent agent for as long as it may be silent', async () => {
    const driver = new Driver(1)
    let isOver = false
    const located = driver.directory.locate('only').finally(() => (isOver = true))
    await driver.pass(900)
    expect(isOver).toBe(false)
    await driver.pass(300)
    expect(await located).toBeNull()
  })

  it('a driver that is repeatedly busy still loses a silent agent', async () => {
    const driver = new Driver(1)
    await driver.announce()
    driver.restart(null)
    for (let stops = 0; stops < 6; stops++) {
      driver.stop(5000)
      await driver.pass(250)
    }
    expect(driver.told).toEqual(['joined only', 'lost: it was silent for 1 s'])
  })
})

describe('the watcher of an agent', () => {
  it('a watcher reports the exit of its agent, which is lost once', async () => {
    const driver = new Driver(3600)
    await driver.announce()
    driver.report('dead')
    driver.report('dead')
    await driver.announce()
    expect(driver.told).toEqual(['joined only', 'lost: its process is gone'])
    // Its next start is another agent.
    driver.restart(2)
    await driver.announce(2)
    driver.report('dead')
    expect(driver.told.slice(2)).toEqual(['joined only'])
  })

  it('a watcher reports silence to any requester, but not by a replayed report', () => {
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

describe('an announcement', () => {
  it('a replayed announcement of a lost agent makes nobody join', async () => {
    const driver = new Driver(1)
    const recorded = await driver.announce()
    driver.restart(null)
    for (let tick = 0; tick < 6; tick++) await driver.pass(250)
    expect(driver.told).toEqual(['joined only', 'lost: it was silent for 1 s'])
    await driver.send(recorded)
    expect(driver.told).toHaveLength(2)
    expect([driver.directory.agents, driver.directory.find('only')]).toEqual([[], undefined])
  })

  it('a replayed announcement of an earlier start does not replace the current agent', async () => {
    const driver = new Driver(3600)
    driver.restart(7)
    const recorded = await driver.announce(7)
    expect(driver.told).toEqual(['joined only'])
    // Its number is smaller, as after a clock that was set back.
    driver.restart(3)
    await driver.announce(3)
    expect(driver.told.slice(1)).toEqual(['lost: it was started again', 'joined only'])
    const unknown = await new Driver(3600).announce(9)
    for (const data of [recorded, unknown]) await driver.send(data)
    expect(driver.told).toHaveLength(3)
    expect(driver.directory.find('only')?.announcement.epoch).toBe(3)
  })
})
