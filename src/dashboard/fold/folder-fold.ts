/** Answers queries about a folder: the list of its runs. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import type { ViewQuery } from '../protocol.ts'
import { RecordList } from '../queries/records/records.ts'

/** The minimum time between two listings of the folder. */
const listIntervalMs = 2000

export class FolderFold {
  readonly #clock: Clock
  readonly #list: RecordList

  constructor(folder: string, writers: RecordWriterStates, clock: Clock) {
    this.#clock = clock
    this.#list = new RecordList(folder, writers)
  }

  refresh(): Promise<string> {
    return Promise.resolve(String(Math.floor(this.#clock.monotonicMs() / listIntervalMs)))
  }

  async answer({ kind }: ViewQuery): Promise<string> {
    if (kind !== 'records') throw new StateError('choose one of the runs first')
    return JSON.stringify(await this.#list.show())
  }
}
