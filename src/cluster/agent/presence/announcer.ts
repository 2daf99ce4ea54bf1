/** Announces an agent, periodically and in answer to requests for agents. */

import { hostname } from 'node:os'
import type { Clock } from '../../../foundation/clock.ts'
import { version } from '../../../foundation/version.ts'
import type { Broker } from '../../broker/broker.ts'
import { type Keys, noHeader, seal } from '../../wire/envelope.ts'
import type { Announcement } from '../../wire/messages.ts'
import { announcementSubject } from '../../wire/subjects.ts'
import type { AgentWatcher } from './agent-watcher.ts'

/** The fields that do not change while the agent runs. */
export type AgentIdentity = Pick<Announcement, 'name' | 'epoch' | 'facts' | 'only' | 'allow'>

export interface AnnouncerOptions {
  readonly broker: Broker
  readonly clock: Clock
  readonly keys: Keys
  readonly identity: AgentIdentity
  /** Reports for this agent when the agent cannot; `null` if the parent process does. */
  readonly watcher: AgentWatcher | null
  readonly describe: () => Pick<Announcement, 'state' | 'sessions' | 'refusedMessages'>
}

/** The minimum time between answers to senders with another token or version. */
const minRefusedAnswerMs = 1000

export class Announcer {
  readonly #options: AnnouncerOptions
  #announcements = 0
  #refusedAnswerMs = -Infinity

  constructor(options: AnnouncerOptions) {
    this.#options = options
  }

  announce(state?: Announcement['state']): void {
    const { broker, keys, identity, watcher, describe } = this.#options
    const announcement: Announcement = {
      kind: 'announcement',
      ...identity,
      host: hostname(),
      pid: process.pid,
      version,
      ...describe(),
      ...(state === undefined ? {} : { state }),
    }
    watcher?.update(announcement)
    const header = { ...noHeader, epoch: identity.epoch, number: ++this.#announcements }
    const data = seal(keys.toDriver, announcementSubject, header, announcement)
    broker.publish(announcementSubject, data)
  }

  /** Answers a request for agents. `isKnown`: the sender has the same token and version. */
  answer(isKnown: boolean): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (!isKnown && nowMs - this.#refusedAnswerMs < minRefusedAnswerMs) return
    if (!isKnown) this.#refusedAnswerMs = nowMs
    this.announce()
  }
}
