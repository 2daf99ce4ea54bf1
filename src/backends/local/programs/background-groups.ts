/** Process groups that outlive their programs, until `end` or `killAll` ends them. */

import { systemClock as clock } from '../../../foundation/clock.ts'
import {
  type GroupMember,
  hasVariable,
  type ProcessIdentity,
  readGroups,
  signalGroup,
} from '../../../runtime/process-group.ts'
import { poll } from '../../../runtime/retry.ts'

/** Short enough that the id of an ended group is not reused before the first look. */
const lookDelayMs = 50
const firstPollMs = 5
const maxPollMs = 100
/** How long killed processes may take to disappear; one that waits for a disk may never do so. */
const maxKilledMs = 1000
/**
 * The maximum number of looks at a group in which no known member is found. A single look may miss
 * both a member that is being replaced and its successor.
 */
const looksAtDoubt = 4

interface BackgroundGroup {
  readonly owner: string
  /** The members found by the last look; `null` before the first. */
  members: readonly GroupMember[] | null
}

/**
 * The system reuses group ids. So a group gets a signal only if a member is known from an earlier
 * look (same process id and start time), or was forked by a program of this launcher: then it has
 * the launcher's variable in its environment and the group's session. Needs `/proc`.
 */
export class BackgroundGroups {
  /** `NAME=value`, which is in the environment of all programs. */
  readonly #mark: string
  readonly #groups = new Map<number, BackgroundGroup>()
  #isLookDue = false

  constructor(mark: string) {
    this.#mark = mark
  }

  /** Adds the group of an ended program that has left other members in it. */
  add(group: number, owner: string): void {
    this.#groups.set(group, { owner, members: null })
    if (this.#isLookDue) return
    // One look serves many groups, because it reads the state of all processes.
    this.#isLookDue = true
    clock.after(lookDelayMs, () => this.#look(), { background: true })
  }

  /** Forgets a group whose id now belongs to a new program. */
  delete(group: number): void {
    this.#groups.delete(group)
  }

  /**
   * Sends SIGTERM, and after the grace period SIGKILL, to this owner's groups; `null` for all
   * owners.
   */
  async end(owner: string | null, graceMs: number): Promise<void> {
    if (this.#signal(owner, 'SIGTERM') === 0) return
    if (await this.#areGone(owner, graceMs, null)) return
    await this.#areGone(owner, maxKilledMs, 'SIGKILL')
  }

  /** Sends SIGKILL to all groups at once. */
  killAll(): void {
    this.#signal(null, 'SIGKILL')
  }

  async #areGone(owner: string | null, ms: number, signal: 'SIGKILL' | null): Promise<boolean> {
    const policy = { delayMs: firstPollMs, maxDelayMs: maxPollMs, timeoutMs: ms }
    // Repeats the signal: a process that was forked during the first one did not get it.
    const areGone = (): boolean => this.#signal(owner, signal) === 0
    return (await poll(policy, areGone, { clock })) === true
  }

  /** Signals the groups of an owner, unless `signal` is `null`. Returns their number. */
  #signal(wanted: string | null, signal: NodeJS.Signals | null): number {
    if (this.#groups.size === 0) return 0
    this.#look()
    const left = [...this.#groups].filter(([, { owner }]) => wanted === null || wanted === owner)
    if (signal !== null) for (const [group] of left) signalGroup(group, signal)
    return left.length
  }

  /** Forgets groups that have ended, and reads the members of the others. */
  #look(): void {
    this.#isLookDue = false
    let doubtful = new Set<number>(this.#groups.keys())
    for (let looks = 0; doubtful.size > 0 && looks < looksAtDoubt; looks++) {
      doubtful = this.#lookAt(doubtful)
    }
    for (const id of doubtful) this.#groups.delete(id)
  }

  /** Returns the groups that still have members, but none known to belong to this launcher. */
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
