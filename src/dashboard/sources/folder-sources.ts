/** The runs of a folder: a list, and the views of those that viewers open. */

import { ValueError } from '../../foundation/errors.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import { findInFolder } from '../queries/records/records.ts'
import { RecordSource } from './record-source.ts'
import type { ViewSource, ViewSources } from './view-source.ts'

/** The maximum number of open records, because each has a thread. The oldest is closed first. */
const maxOpen = 8

export class FolderSources implements ViewSources {
  readonly #folder: string
  readonly #writers: RecordWriterStates
  readonly #list: RecordSource
  readonly #openSources = new Map<string, RecordSource>()

  constructor(folder: string, writers: RecordWriterStates) {
    this.#folder = folder
    this.#writers = writers
    this.#list = new RecordSource(folder, { writers, hasReport: false })
  }

  find(record: string | undefined): ViewSource {
    if (record === undefined) return this.#list
    const known = this.#openSources.get(record)
    if (known !== undefined) return known
    const path = findInFolder(this.#folder, record)
    if (path === null) throw new ValueError('there is no such record in the folder')
    const [oldest] = this.#openSources
    if (this.#openSources.size >= maxOpen && oldest !== undefined) {
      this.#openSources.delete(oldest[0])
      oldest[1].close().catch(() => undefined)
    }
    const source = new RecordSource(path, { writers: this.#writers })
    this.#openSources.set(record, source)
    return source
  }

  async close(): Promise<void> {
    const all = [this.#list, ...this.#openSources.values()]
    await Promise.all(all.map((source) => source.close()))
  }
}
