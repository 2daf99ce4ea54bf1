/** Answers the queries of all viewers of one source, each when its answer has changed. */

import { hash } from 'node:crypto'
import { type Clock, sleep } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { VersionedQuery, ViewQuery, ViewsRequest } from './protocol.ts'
import { SharedResult } from '../foundation/promises.ts'
import type { ViewSource } from './sources/view-source.ts'

/** The shortest time between two answers to the same viewer: at most 4 answers per second. */
const intervalMs = 250
/** The maximum number of cached answers. Viewers often send the same queries. */
const maxAnswers = 64
/** The maximum length of a view, and of all answers in a response, in UTF-8 bytes. */
const maxAnswerBytes = 524_288
const maxResponseBytes = 786_432

interface CachedAnswer {
  /** The digest of the view. */
  readonly version: string
  /** The fields `view` and `error` as JSON. */
  readonly fields: string
}

export class ViewPolls {
  readonly #source: ViewSource
  readonly #clock: Clock
  readonly #answers = new Map<string, SharedResult<CachedAnswer>>()
  #revision = ''
  #refreshedMs = -Infinity
  #refreshing: Promise<void> | null = null

  constructor(source: ViewSource, clock: Clock) {
    this.#source = source
    this.#clock = clock
  }

  /**
   * Resolves with the changed answers as the elements of a JSON array; with none if nothing has
   * changed within `waitSeconds`, or when the signal is aborted.
   */
  async poll({ queries, waitSeconds }: ViewsRequest, signal: AbortSignal): Promise<string[]> {
    const deadline = this.#clock.monotonicMs() + waitSeconds * 1000
    // Answers a new query immediately. Limits how often a repeated query is answered.
    if (queries.every(({ version }) => version !== undefined)) await this.#pause(deadline, signal)
    let seen: string | null = null
    while (!signal.aborted) {
      await this.#refresh()
      const changed = seen === this.#revision ? [] : await this.#changedAnswers(queries, signal)
      seen = this.#revision
      const isOver = this.#clock.monotonicMs() >= deadline
      if (changed.length > 0 || isOver) return changed
      await this.#pause(deadline, signal)
    }
    return []
  }

  async #pause(deadline: number, signal: AbortSignal): Promise<void> {
    const msLeft = deadline - this.#clock.monotonicMs()
    const ms = Math.max(0, Math.min(msLeft, intervalMs))
    await sleep(this.#clock, ms, { signal, background: true }).catch(() => undefined)
  }

  /** All viewers share a refresh. */
  async #refresh(): Promise<void> {
    if (this.#refreshing === null) {
      if (this.#clock.monotonicMs() - this.#refreshedMs < intervalMs) return
      this.#refreshing = this.#takeRevision().finally(() => {
        this.#refreshedMs = this.#clock.monotonicMs()
        this.#refreshing = null
      })
    }
    await this.#refreshing
  }

  async #takeRevision(): Promise<void> {
    const revision = await this.#source.refresh().catch((error: unknown) => messageOf(error))
    if (revision === this.#revision) return
    this.#revision = revision
    this.#answers.clear()
  }

  async #changedAnswers(
    queries: readonly VersionedQuery[],
    signal: AbortSignal,
  ): Promise<string[]> {
    const changed: string[] = []
    let bytes = 0
    for (const { id, query, version: known } of queries) {
      const answer = await this.#answer(query, signal)
      if (answer === null) return []
      const { version, fields } = answer
      if (version === known) continue
      const text = `{"id":${JSON.stringify(id)},"version":"${version}",${fields}}`
      bytes += Buffer.byteLength(text)
      // The rest follows in the next response, because its version still differs.
      if (changed.length > 0 && bytes > maxResponseBytes) break
      changed.push(text)
    }
    return changed
  }

  /** Resolves with `null` once the signal is aborted. */
  async #answer(query: ViewQuery, signal: AbortSignal): Promise<CachedAnswer | null> {
    const key = JSON.stringify(query)
    const known = this.#answers.get(key)
    const answer = known === undefined || known.isAborted ? this.#compute(key, query) : known
    return await answer.wait(signal).catch(() => null)
  }

  #compute(key: string, query: ViewQuery): SharedResult<CachedAnswer> {
    const [oldest] = this.#answers.keys()
    if (this.#answers.size >= maxAnswers && oldest !== undefined) this.#answers.delete(oldest)
    const answer = new SharedResult((signal) =>
      this.#source.answer(query, signal).then(toAnswer, toFailure),
    )
    this.#answers.set(key, answer)
    return answer
  }
}

function toAnswer(view: string): CachedAnswer {
  if (Buffer.byteLength(view) > maxAnswerBytes) return toFailure(new Error(tooLarge))
  return withVersion(`"view":${view}`)
}

const tooLarge = 'This panel has too much to show at once. Choose a shorter time or a name.'

const toFailure = (error: unknown): CachedAnswer =>
  withVersion(`"view":null,"error":${JSON.stringify(messageOf(error))}`)

const withVersion = (fields: string): CachedAnswer => ({
  version: hash('sha256', fields, 'base64url').slice(0, 16),
  fields,
})
