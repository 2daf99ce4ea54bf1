/** Finds which programs commands want to follow, by their requests; see `tutti logs`. */

import { readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { followFolderOf, requestedUid } from '../../checkpoint/record-names.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { Entry } from '../entry.ts'
import { FollowedProgram } from './followed-program.ts'

const lookMs = 1000
/** A request that its command has not renewed for this long is removed. */
const staleMs = 10_000

export interface FollowerParts {
  readonly clock: Clock
  /** The record that the session writes. */
  readonly record: string
  /** The open task with this uid. */
  readonly find: (uid: string) => Entry | null
}

/** Without a request, costs one look at a folder per second. */
export class OutputFollower {
  readonly #parts: FollowerParts
  readonly #folder: string
  /** When each request was last seen to change, by this clock: those of two hosts may differ. */
  readonly #requests = new Map<string, { readonly changed: number; readonly seenMs: number }>()
  readonly #followed = new Map<string, FollowedProgram>()
  #cancelLook: () => void = () => {}
  #isStopped = false

  constructor(parts: FollowerParts) {
    this.#parts = parts
    this.#folder = followFolderOf(parts.record)
  }

  start(): void {
    if (this.#isStopped) return
    const look = (): void => {
      // A folder that cannot be read or written must not disturb the session.
      const looked = this.#look().catch(() => {})
      void looked.then(() => this.start())
    }
    this.#cancelLook = this.#parts.clock.after(lookMs, look, { background: true })
  }

  /** Leaves what a command is still reading: it removes the files itself. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cancelLook()
    await this.#takeRequests().catch(() => {})
  }

  async #look(): Promise<void> {
    await this.#takeRequests()
    await Promise.all(Array.from(this.#followed.values(), (one) => one.update()))
  }

  async #takeRequests(): Promise<void> {
    const names = await readdir(this.#folder).catch(() => null)
    const wanted = new Set<string>()
    for (const name of names ?? []) {
      const uid = requestedUid(name)
      if (uid === null) continue
      if (await this.#isFresh(name)) wanted.add(uid)
      else await rm(join(this.#folder, name), { force: true })
    }
    for (const uid of wanted) {
      const find = (): Entry | null => this.#parts.find(uid)
      if (!this.#followed.has(uid)) {
        this.#followed.set(uid, new FollowedProgram(this.#folder, uid, find))
      }
    }
    for (const [uid, one] of this.#followed) {
      if (wanted.has(uid)) continue
      this.#followed.delete(uid)
      await one.remove()
    }
    if (names === null || wanted.size > 0) return
    this.#requests.clear()
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #isFresh(name: string): Promise<boolean> {
    const changed = (await stat(join(this.#folder, name)).catch(() => null))?.mtimeMs
    if (changed === undefined) return false
    const nowMs = this.#parts.clock.monotonicMs()
    const known = this.#requests.get(name)
    if (known?.changed === changed) return nowMs - known.seenMs < staleMs
    this.#requests.set(name, { changed, seenMs: nowMs })
    return true
  }
}
