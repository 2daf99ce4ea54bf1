/** Opens what other processes send to an agent, and counts what it refuses for announcements. */

import { messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { type Key, open, type OpenedMessage, VersionMismatchError } from '../../wire/envelope.ts'

export interface ReceivedMessagesOptions {
  /** The agent's name. */
  readonly name: string
  readonly key: Key
  readonly log: Log
}

export class ReceivedMessages {
  readonly #options: ReceivedMessagesOptions
  /** Protocol versions of drivers that this agent cannot understand. */
  readonly #otherVersions = new Set<number>()
  #refused = 0

  constructor(options: ReceivedMessagesOptions) {
    this.#options = options
  }

  /** How many messages were refused. */
  get refused(): number {
    return this.#refused
  }

  /** `null` if the message is refused. */
  open(subject: string, data: Uint8Array): OpenedMessage | null {
    try {
      return open(this.#options.key, subject, data)
    } catch (error) {
      const theirs = error instanceof VersionMismatchError ? error.theirs : null
      const isNew = theirs !== null && !this.#otherVersions.has(theirs)
      if (theirs !== null) this.#otherVersions.add(theirs)
      this.refuse(messageOf(error), isNew)
      return null
    }
  }

  /** Warns of the first refused message, and of the first of each other version. */
  refuse(reason: string, isNewVersion = false): void {
    if (this.#refused++ > 0 && !isNewVersion) return
    const { name, log } = this.#options
    const text = `agent "${name}" refused a message: ${reason}`
    log.warn('MessageRefused', `${text}; further ones are counted`)
  }
}
