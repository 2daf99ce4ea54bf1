/** The runs of a folder: a list, and the views of those that viewers open. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError, ValueError } from '../../foundation/errors.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import { findInFolder } from '../queries/records/records.ts'
import { RecordSource } from './record-source.ts'
import type { ViewSource, ViewSources } from './view-source.ts'

/** The maximum number of open records, because each has a thread. */
const maxOpen = 8
/** A record that nobody has looked at for this long is closed if another one is wanted. */
const idleMs = 5000

export class FolderSources implements ViewSources {
  readonly #folder: string
  readonly #parts: { readonly writers: RecordWriterStates; readonly clock: Clock }
  readonly #list: RecordSource
  readonly #openSources = new Map<string, RecordSource>()

  constructor(folder: string, parts: { writers: RecordWriterStates; clock: Clock }) {
    this.#folder = folder
    this.#parts = parts
    this.#list = new RecordSource(folder, { ...parts, hasReport: false })
  }

  find(record: string | undefined): ViewSource {
    if (record === undefined) return this.#list
    const known = this.#openSources.get(record)
    if (known !== undefined) return known
    const path = findInFolder(this.#folder, record)
    if (path === null) throw new ValueError('there is no such record in the folder')
    if (this.#openSources.size >= maxOpen && !this.#closeIdle()) return new RefusedSource()
    const source = new RecordSource(path, this.#parts)
    this.#openSources.set(record, source)
    return source
  }

  /** Closes the record that was unused for the longest time. Returns whether there was one. */
  #closeIdle(): boolean {
    const byUse = [...this.#openSources].toSorted(([, a], [, b]) => a.lastUsedMs - b.lastUsedMs)
    const [oldest] = byUse
    if (oldest === undefined) return false
    const [record, source] = oldest
    if (this.#parts.clock.monotonicMs() - source.lastUsedMs < idleMs) return false
    this.#openSources.delete(record)
    source.close().catch(() => undefined)
    return true
  }

  async close(): Promise<void> {
    const all = [this.#list, ...this.#openSources.values()]
    await Promise.all(all.map((source) => source.close()))
  }
}

/** Answers every query with an error, which the page shows. */
class RefusedSource implements ViewSource {
  readonly hasReport = false

  refresh(): Promise<string> {
    return Promise.resolve('')
  }

  answer(): Promise<string> {
    const reason = `${maxOpen} other runs are open, the maximum; close the page of one of them`
    return Promise.reject(new StateError(reason))
  }

  report(): never {
    throw new StateError('the run is not open')
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}
