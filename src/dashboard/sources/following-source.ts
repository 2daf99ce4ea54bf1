/**
 * The views of a run whose record is not known from the beginning, such as the record of a script.
 */

import { StateError } from '../../foundation/errors.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import { createRunPass } from '../../views/all-panels.ts'
import type { ViewQuery } from '../protocol.ts'
import { answerQuery } from '../queries/queries.ts'
import { RecordSource } from './record-source.ts'
import type { ViewSource } from './view-source.ts'

export class FollowingSource implements ViewSource {
  readonly #findRecord: () => string | null
  readonly #writers: RecordWriterStates
  #path: string | null = null
  #source: RecordSource | null = null

  /** `findRecord` returns `null` until there is a record, and later possibly another record. */
  constructor(findRecord: () => string | null, writers: RecordWriterStates) {
    this.#findRecord = findRecord
    this.#writers = writers
  }

  get hasReport(): boolean {
    return this.#source !== null
  }

  async refresh(): Promise<string> {
    const path = this.#findRecord()
    if (path !== null && path !== this.#path) {
      await this.#source?.close()
      this.#source = new RecordSource(path, { writers: this.#writers })
      this.#path = path
    }
    return this.#source === null ? 'none' : `${this.#path} ${await this.#source.refresh()}`
  }

  async answer(query: ViewQuery, signal: AbortSignal): Promise<string> {
    if (this.#source !== null) return await this.#source.answer(query, signal)
    return JSON.stringify(await answerQuery(noRun, query))
  }

  report(): AsyncIterable<string> {
    if (this.#source === null) throw noRecord()
    return this.#source.report()
  }

  async close(): Promise<void> {
    await this.#source?.close()
  }
}

const noRecord = (): StateError => new StateError('the run has not started a record yet')

const noRun = {
  pass: createRunPass(),
  sessionId: '',
  state: 'running',
  now: 0,
  files: [],
  metrics: null,
  telemetry: null,
  serving: null,
  events: [],
  reading: null,
  beginsAt: null,
  missing: ['the run has not started a record yet'],
  readTask: () => Promise.resolve(null),
  at: () => Promise.reject(noRecord()),
} as const
