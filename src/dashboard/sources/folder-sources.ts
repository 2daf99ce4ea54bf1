/** The runs of a folder: a list, and the views of those that viewers open. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError, ValueError } from '../../foundation/errors.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import type { ViewQuery } from '../protocol.ts'
import { findInFolder, showRecords } from '../queries/records.ts'
import { RecordSource } from './record-source.ts'
import type { ViewSource, ViewSources } from './view-source.ts'

/** The maximum number of open records, because each has a thread. The oldest is closed first. */
const maxOpen = 8

export class FolderSources implements ViewSources {
  readonly #folder: string
  readonly #writers: RecordWriterStates
  readonly #list: FolderList
  readonly #open = new Map<string, RecordSource>()

  constructor(folder: string, writers: RecordWriterStates, clock: Clock) {
    this.#folder = folder
    this.#writers = writers
    this.#list = new FolderList(folder, writers, clock)
  }

  find(record: string | undefined): ViewSource {
    if (record === undefined) return this.#list
    const known = this.#open.get(record)
    if (known !== undefined) return known
    const path = findInFolder(this.#folder, record)
    if (path === null) throw new ValueError('there is no such record in the folder')
    const [oldest] = this.#open
    if (this.#open.size >= maxOpen && oldest !== undefined) {
      this.#open.delete(oldest[0])
      oldest[1].close().catch(() => undefined)
    }
    const source = new RecordSource(path, this.#writers)
    this.#open.set(record, source)
    return source
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#open.values(), (source) => source.close()))
  }
}

/** The minimum time between two listings of the folder, because a listing takes long. */
const listIntervalMs = 2000

class FolderList implements ViewSource {
  readonly hasReport = false
  readonly #folder: string
  readonly #writers: RecordWriterStates
  readonly #clock: Clock

  constructor(folder: string, writers: RecordWriterStates, clock: Clock) {
    this.#folder = folder
    this.#writers = writers
    this.#clock = clock
  }

  refresh(): Promise<string> {
    return Promise.resolve(String(Math.floor(this.#clock.monotonicMs() / listIntervalMs)))
  }

  async answer({ kind }: ViewQuery): Promise<string> {
    if (kind !== 'records') throw new StateError('choose one of the runs first')
    return JSON.stringify(await showRecords(this.#folder, this.#writers))
  }

  report(): never {
    throw new StateError('choose one of the runs first')
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}
