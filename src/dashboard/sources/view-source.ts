/** The interface between the HTTP server and its content: a record, a live session or a folder. */

import type { ViewQuery } from '../protocol.ts'

/** The views that the server offers: those of one run, or those of each run in a folder. */
export interface ViewSources {
  /** Returns the source for a page. `record` is given only if the page lists a folder. */
  find(record: string | undefined): ViewSource
  close(): Promise<void>
}

/** The views of one run, or the list of the runs in a folder. */
export interface ViewSource {
  /** Whether `report()` can be called. */
  readonly hasReport: boolean
  /**
   * Reads new data. Resolves with a text that changes whenever an answer may have changed. The
   * source does nothing between two calls. Rejects if nothing can be read.
   */
  refresh(): Promise<string>
  /**
   * Resolves with the view as JSON. Rejects if the query cannot be answered. Once `signal` is
   * aborted, nobody needs the answer.
   */
  answer(query: ViewQuery, signal: AbortSignal): Promise<string>
  /** The report of the run so far, in pieces. */
  report(): AsyncIterable<string>
  close(): Promise<void>
}
