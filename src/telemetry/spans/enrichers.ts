/**
 * Functions of the application that add attributes to task spans; a faulty one is reported once and
 * ignored.
 */

import type { BaseEvent } from '../../events/event.ts'
import type { TelemetryEvent } from '../../events/vocabulary.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { expectFunction } from '../../foundation/options.ts'

/** Called with the TaskCreated of a task; what it returns becomes attributes of the task's span. */
export type SpanEnricher = (
  event: TelemetryEvent,
) => Readonly<Record<string, string | number | boolean>>

const mostKeys = 128

export class Enrichers {
  readonly #enrichers: SpanEnricher[] = []
  readonly #reported = new Set<SpanEnricher>()
  readonly #log: Log

  constructor(log: Log) {
    this.#log = log
  }

  add(enricher: SpanEnricher): void {
    expectFunction('enricher', enricher)
    this.#enrichers.push(enricher)
  }

  /** What all enrichers add for this task, in order of registration; `null` when nothing. */
  enrich(event: BaseEvent): JsonObject | null {
    if (this.#enrichers.length === 0) return null
    const added: Record<string, unknown> = {}
    for (const enricher of this.#enrichers) Object.assign(added, this.#ask(enricher, event))
    return Object.keys(added).length === 0 ? null : toJsonObject(added)
  }

  #ask(enricher: SpanEnricher, event: BaseEvent): Readonly<Record<string, unknown>> {
    try {
      const answer: unknown = enricher(event as TelemetryEvent)
      const copy = { ...(answer as object) }
      const problem = problemOf(answer) ?? problemOfEntries(Object.entries(copy))
      if (problem === null) return copy
      this.#report(enricher, problem)
    } catch (error) {
      this.#report(enricher, `threw: ${messageOf(error)}`)
    }
    return {}
  }

  #report(enricher: SpanEnricher, problem: string): void {
    if (this.#reported.has(enricher)) return
    this.#reported.add(enricher)
    const name = enricher.name === '' ? `#${this.#enrichers.indexOf(enricher) + 1}` : enricher.name
    this.#log.warn('SpanEnricherError', `span enricher ${name} is ignored: it ${problem}`)
  }
}

function problemOf(answer: unknown): string | null {
  if (typeof answer !== 'object' || answer === null) return 'returned no object'
  if (answer instanceof Promise) {
    // Nothing awaits it; its rejection must not end the process.
    answer.catch(() => {})
    return 'returned a promise'
  }
  return Array.isArray(answer) ? 'returned an array' : null
}

function problemOfEntries(entries: readonly [string, unknown][]): string | null {
  if (entries.length > mostKeys) return `returned ${entries.length} keys (at most ${mostKeys})`
  const wrong = entries.find(([, value]) => !['string', 'number', 'boolean'].includes(typeof value))
  return wrong === undefined ? null : `returned a nested value under "${wrong[0]}"`
}
