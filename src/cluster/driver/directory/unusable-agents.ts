/** Collects refused announcements, and what they say about agents that cannot be used. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { readHeader, VersionMismatchError, WrongSignatureError } from '../../wire/envelope.ts'

export interface UnusableAgentsOptions {
  readonly clock: Clock
  readonly log: Log
  /** An agent is forgotten after this time of silence. */
  readonly lossSeconds: number
}

/** The most agents of other versions that are listed. */
const maxOthers = 100

interface OtherVersion {
  readonly error: VersionMismatchError
  readonly heardMs: number
}

export class UnusableAgents {
  readonly #options: UnusableAgentsOptions
  /** Agents of other versions of the protocol, by version and name, with the time last heard. */
  readonly #otherVersions = new Map<string, OtherVersion>()
  /** When an agent with another token was last heard. */
  #otherTokenMs = -Infinity
  #refusedMessages = 0

  constructor(options: UnusableAgentsOptions) {
    this.#options = options
  }

  /** Why agents that announce themselves cannot be used. */
  get errors(): readonly BackendError[] {
    const { clock, lossSeconds } = this.#options
    const sinceMs = clock.monotonicMs() - lossSeconds * 1000
    const others = [...this.#otherVersions.values()].filter(({ heardMs }) => heardMs >= sinceMs)
    const versions = others.map(({ error }) => error)
    return this.#otherTokenMs >= sinceMs ? [...versions, otherToken()] : versions
  }

  /** `data` is the refused announcement; `null` for another message. */
  refuse(error: unknown, data: Uint8Array | null): void {
    const { clock, log } = this.#options
    const nowMs = clock.monotonicMs()
    if (error instanceof VersionMismatchError) {
      const key = `${error.theirs} ${error.agent ?? ''}`
      const isKnown = this.#otherVersions.has(key)
      if (!isKnown && this.#otherVersions.size >= maxOthers) return
      this.#otherVersions.set(key, { error, heardMs: nowMs })
      if (isKnown) return
      return log.warn('VersionMismatchError', messageOf(error))
    }
    const isAgent = data !== null && readHeader(data) !== null
    if (error instanceof WrongSignatureError && isAgent) this.#otherTokenMs = nowMs
    if (this.#refusedMessages++ > 0) return
    const text = `an announcement was refused: ${messageOf(error)}; further ones are counted`
    log.warn('MessageRefused', text)
  }
}

const otherToken = (): BackendError =>
  new BackendError('an agent announces itself with another token', {
    code: 'TokenMismatchError',
    hint: 'Give all nodes the same token, or this cluster a server or account of its own.',
  })
