/** What programs left behind in their process groups when they ended, until somebody ends it. */

import { systemClock as clock, sleep } from '../../../foundation/clock.ts'
import {
  type GroupMember,
  hasVariable,
  type ProcessIdentity,
  readGroups,
  signalGroup,
} from '../../../runtime/process-group.ts'

/** Soon enough that the id of a group which has ended is not in use again. */
const lookDelayMs = 50
const firstPollMs = 5
const longestPollMs = 100
/** How long killed processes may take to be gone: those that wait for a disk may never be. */
const maxKilledMs = 1000
/** A member that is replaced during a look may be missed by it, and its successor too. */
const looksAtDoubt = 4

interface BackgroundGroup {
  readonly owner: string
  /** As of the last look; `null` before the first. */
  members: readonly GroupMember[] | null
}

/**
 * Groups are named by ids, which the system uses again. A group gets a signal only if one of its
 * members is known from an earlier look, by its start time, or was forked by what we started: then
 * it has our variable in its environment, and the session of the group. Needs `/proc`.
 */
export class BackgroundGroups {
  /** `NAME=value`, in the environment of all programs. */
  readonly #mark: string
  readonly #groups = new Map<number, BackgroundGroup>()
  #isLookDue = false

  constructor(mark: string) {
    this.#mark = mark
  }

  /** A program of this owner has ended, and its group has other members. */
  add(group: number, owner: string): void {
    this.#groups.set(group, { owner, members: null })
    if (this.#isLookDue) return
    // One look for many groups: each reads the state of all processes.
    this.#isLookDue = true
    clock.after(lookDelayMs, () => this.#look(), { background: true })
  }

  /** The id belongs to a new program. */
  delete(group: number): void {
    this.#groups.delete(group)
  }

  /** SIGTERM, and after the grace SIGKILL, to the groups of this owner; `null` for all. */
  async end(owner: string | null, graceMs: number): Promise<void> {
    if (this.#signal(owner, 'SIGTERM') === 0) return
    if (await this.#areGone(owner, graceMs, null)) return
    await this.#areGone(owner, maxKilledMs, 'SIGKILL')
  }

  /** SIGKILL at once. */
  killAll(): void {
    this.#signal(null, 'SIGKILL')
  }

  async #areGone(owner: string | null, ms: number, signal: 'SIGKILL' | null): Promise<boolean> {
    const start = clock.monotonicMs()
    // Signaled again: a process that was forked during the first signal did not get it.
    for (let pollMs = firstPollMs; this.#signal(owner, signal) > 0;) {
      if (clock.monotonicMs() - start >= ms) return false
      await sleep(clock, pollMs)
      pollMs = Math.min(pollMs * 2, longestPollMs)
    }
    return true
  }

  /** How many groups are left; without a signal they are only counted. */
  #signal(wanted: string | null, signal: NodeJS.Signals | null): number {
    if (this.#groups.size === 0) return 0
    this.#look()
    const left = [...this.#groups].filter(([, { owner }]) => wanted === null || wanted === owner)
    if (signal !== null) for (const [group] of left) signalGroup(group, signal)
    return left.length
  }

  /** Forgets groups that have ended, and learns the members of the others. */
  #look(): void {
    this.#isLookDue = false
    let doubtful = new Set<number>(this.#groups.keys())
    for (let looks = 0; doubtful.size > 0 && looks < looksAtDoubt; looks++) {
      doubtful = this.#lookAt(doubtful)
    }
    for (const id of doubtful) this.#groups.delete(id)
  }

  /** Gives the groups that have members, though none that proves to be ours. */
  #lookAt(ids: ReadonlySet<number>): Set<number> {
    const groups = readGroups()
    const doubtful = new Set<number>()
    for (const id of ids) {
      const known = this.#groups.get(id)
      const members = groups?.get(id) ?? []
      if (known === undefined) continue
      if (members.some((member) => this.#isOurs(member, known))) known.members = members
      else if (signalGroup(id, 0)) doubtful.add(id)
      else this.#groups.delete(id)
    }
    return doubtful
  }

  #isOurs(member: GroupMember, { members }: BackgroundGroup): boolean {
    if (members === null || isIn(members, member)) return true
    return member.session === members[0]?.session && hasVariable(member.pid, this.#mark)
  }
}

const isIn = (known: readonly ProcessIdentity[], { pid, startTime }: ProcessIdentity): boolean =>
  known.some((each) => each.pid === pid && each.startTime === startTime)
