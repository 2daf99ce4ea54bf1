/** Tracks process groups that outlive their programs, and ends them. */

import { systemClock as clock } from '../../../foundation/clock.ts'
import {
  type GroupMember,
  hasVariable,
  type ProcessIdentity,
  readGroups,
  signalGroup,
} from '../../../runtime/process-group.ts'
import { poll } from '../../../runtime/retry.ts'

/** The delay is short, so that the id of an ended group is not reused before the first scan. */
const firstScanDelayMs = 50
const firstPollMs = 5
const maxPollMs = 100
/** How long to wait for killed processes. A process that waits for a disk may never exit. */
const maxKillWaitMs = 1000
/**
 * How many scans may be needed to find a member of a group. A single scan may miss a member that
 * forks and exits.
 */
const maxDoubtfulScans = 4

interface BackgroundGroup {
  readonly owner: string
  /** The members found by the last scan; `null` before the first scan. */
  members: readonly GroupMember[] | null
}

/**
 * Signals process groups. The system reuses the ids of ended groups. After its first scan, a group
 * is therefore signaled only if one member is known from an earlier scan, or has the launcher's
 * variable and the POSIX session of the group. Needs `/proc`.
 */
export class BackgroundGroups {
  /** The variable, as `NAME=value`, that all programs have in their environment. */
  readonly #variable: string
  readonly #groups = new Map<number, BackgroundGroup>()
  #isScanDue = false

  constructor(mark: string) {
    this.#variable = mark
  }

  add(group: number, owner: string): void {
    this.#groups.set(group, { owner, members: null })
    if (this.#isScanDue) return
    // One scan reads all processes, so it serves many groups.
    this.#isScanDue = true
    clock.after(firstScanDelayMs, () => this.#scan(), { background: true })
  }

  /** Forgets a group that has ended: a new program has its id. */
  delete(group: number): void {
    this.#groups.delete(group)
  }

  /**
   * Ends the groups of an owner (`null`: of all owners). Sends SIGTERM, and SIGKILL after the grace
   * period.
   */
  async end(owner: string | null, graceMs: number): Promise<void> {
    if (this.#signal(owner, 'SIGTERM') === 0) return
    if (await this.#waitUntilGone(owner, graceMs, null)) return
    await this.#waitUntilGone(owner, maxKillWaitMs, 'SIGKILL')
  }

  killAll(): void {
    this.#signal(null, 'SIGKILL')
  }

  async #waitUntilGone(
    owner: string | null,
    ms: number,
    signal: 'SIGKILL' | null,
  ): Promise<boolean> {
    const policy = { delayMs: firstPollMs, maxDelayMs: maxPollMs, timeoutMs: ms }
    // Sends the signal again for processes that were forked since the last one.
    const areGone = (): boolean => this.#signal(owner, signal) === 0
    return (await poll(policy, areGone, { clock })) === true
  }

  /**
   * Signals the groups of an owner (`null`: of all owners) and returns their number. If `signal` is
   * `null`, only counts them.
   */
  #signal(wanted: string | null, signal: NodeJS.Signals | null): number {
    if (this.#groups.size === 0) return 0
    this.#scan()
    const remaining = [...this.#groups].filter(
      ([, { owner }]) => wanted === null || wanted === owner,
    )
    if (signal !== null) for (const [group] of remaining) signalGroup(group, signal)
    return remaining.length
  }

  #scan(): void {
    this.#isScanDue = false
    let unconfirmed = new Set<number>(this.#groups.keys())
    for (let looks = 0; unconfirmed.size > 0 && looks < maxDoubtfulScans; looks++) {
      unconfirmed = this.#scanGroups(unconfirmed)
    }
    for (const id of unconfirmed) this.#groups.delete(id)
  }

  #scanGroups(ids: ReadonlySet<number>): Set<number> {
    const groups = readGroups()
    const doubtful = new Set<number>()
    for (const id of ids) {
      const known = this.#groups.get(id)
      const members = groups?.get(id) ?? []
      if (known === undefined) continue
      if (members.some((member) => this.#isLaunchedHere(member, known))) known.members = members
      else if (signalGroup(id, 0)) doubtful.add(id)
      else this.#groups.delete(id)
    }
    return doubtful
  }

  #isLaunchedHere(member: GroupMember, { members }: BackgroundGroup): boolean {
    if (members === null || includesProcess(members, member)) return true
    return member.session === members[0]?.session && hasVariable(member.pid, this.#variable)
  }
}

const includesProcess = (
  known: readonly ProcessIdentity[],
  { pid, startTime }: ProcessIdentity,
): boolean => known.some((each) => each.pid === pid && each.startTime === startTime)
