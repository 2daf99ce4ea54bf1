/** Announces an agent to drivers, periodically and in answer to discovery requests. */

import { hostname } from 'node:os'
import type { Clock } from '../../../../foundation/clock.ts'
import { version } from '../../../../foundation/version.ts'
import type { Broker } from '../../../broker/broker.ts'
import { type Keys, emptyHeader, seal } from '../../../wire/envelope.ts'
import type { Announcement } from '../../../wire/messages.ts'
import { announcementSubject } from '../../../wire/subjects.ts'
import type { AgentWatcher } from './agent-watcher.ts'

export interface AnnouncerOptions {
  readonly broker: Broker
  readonly clock: Clock
  readonly keys: Keys
  /** The fields of an announcement that do not change while the agent runs. */
  readonly identity: Pick<Announcement, 'name' | 'start' | 'facts' | 'only' | 'allow'>
  /** The process that answers for a silent agent. `null` if the parent process notifies drivers. */
  readonly watcher: AgentWatcher | null
  readonly describe: () => Pick<Announcement, 'state' | 'sessions' | 'refusedMessages'>
}

const minRefusedIntervalMs = 1000

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
    const header = { ...emptyHeader, scope: identity.start, number: ++this.#announcements }
    const data = seal(keys.toDriver, announcementSubject, header, announcement)
    broker.publish(announcementSubject, data)
  }

  /**
   * Answers a discovery request. `isKnown` says whether the sender has the same token and version.
   */
  answer(isKnown: boolean): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (!isKnown && nowMs - this.#refusedAnswerMs < minRefusedIntervalMs) return
    if (!isKnown) this.#refusedAnswerMs = nowMs
    this.announce()
  }
}
