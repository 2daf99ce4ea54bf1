/** Asks the process that writes a record for the output of a running program. */

import { randomUUID } from 'node:crypto'
import { mkdirSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import {
  followFolderOf,
  outputPath,
  requestedUid,
  requestPath,
} from '../../../checkpoint/record-names.ts'
import { systemClock } from '../../../foundation/clock.ts'
import { errnoOf } from '../../../foundation/errors.ts'
import { isRegularFile } from '../../../foundation/regular-file.ts'
import { type Stream, streams } from './task-story.ts'

const renewMs = 2000

export class LiveOutput {
  readonly #uid: string
  readonly #folder: string
  readonly #request: string
  #askedMs = -Infinity
  #problem: string | null = null

  /** `record` is the file that is being written. */
  constructor(uid: string, record: string) {
    this.#uid = uid
    this.#folder = followFolderOf(record)
    this.#request = requestPath(this.#folder, uid, randomUUID())
  }

  /** Why nothing can be asked; `null` if it can. */
  get problem(): string | null {
    return this.#problem
  }

  /** Whether there is an answer, which may be empty. */
  get isAnswered(): boolean {
    return streams.every((stream) => isRegularFile(this.pathOf(stream)))
  }

  pathOf(stream: Stream): string {
    return outputPath(this.#folder, this.#uid, stream)
  }

  /** To be called repeatedly, as long as the output is wanted. */
  ask(): void {
    const nowMs = systemClock.monotonicMs()
    if (this.#problem !== null || nowMs - this.#askedMs < renewMs) return
    this.#askedMs = nowMs
    try {
      mkdirSync(this.#folder, { recursive: true })
      writeFileSync(this.#request, '')
    } catch (error) {
      this.#problem = `the folder of the record cannot be written: ${errnoOf(error)}`
    }
  }

  /** Whether another command asks for the same. */
  get #isWanted(): boolean {
    return readdirSync(this.#folder).some((name) => requestedUid(name) === this.#uid)
  }

  /** The output itself is removed by the writer, or here if the task `hasEnded`. */
  close(hasEnded: boolean): void {
    try {
      rmSync(this.#request, { force: true })
      if (!hasEnded || this.#isWanted) return
      for (const stream of streams) rmSync(this.pathOf(stream), { force: true })
      rmdirSync(this.#folder)
    } catch {
      // Never asked, removed by the writer, or in use for another task.
    }
  }
}
