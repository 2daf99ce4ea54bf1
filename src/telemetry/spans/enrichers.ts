/** Application functions that add attributes to task spans. Each problem is reported once. */

import type { BaseEvent } from '../../events/event.ts'
import type { TelemetryEvent } from '../../events/vocabulary.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { expectFunction } from '../../foundation/options.ts'
import { maskSecretsIn } from '../../foundation/secrets.ts'

/**
 * Called with a task's TaskCreated event. The returned object becomes attributes of the task's
 * span.
 */
export type SpanEnricher = (
  event: TelemetryEvent,
) => Readonly<Record<string, string | number | boolean>>

const maxKeys = 128
/**
 * The maximum number of problems reported per enricher, because it may return any number of keys.
 */
const maxReports = 10

/** The span attributes of the specification and of tutti, which enrichers must not set. */
export const reservedKeys: ReadonlySet<string> = new Set([
  'session_id',
  'backend',
  'task_id',
  'executable',
  'task_type',
  'status',
  'error_type',
  'workflow_id',
])

type AttributeValue = string | number | boolean

export class Enrichers {
  readonly #enrichers: SpanEnricher[] = []
  readonly #reported = new Map<SpanEnricher, Set<string>>()
  readonly #log: Log

  constructor(log: Log) {
    this.#log = log
  }

  add(enricher: SpanEnricher): void {
    expectFunction('enricher', enricher)
    this.#enrichers.push(enricher)
  }

  get hasAny(): boolean {
    return this.#enrichers.length > 0
  }

  /** The attributes from all enrichers, in order of registration; `null` if there are none. */
  enrich(event: BaseEvent): JsonObject | null {
    if (this.#enrichers.length === 0) return null
    const added: Record<string, unknown> = {}
    for (const enricher of this.#enrichers)
      Object.assign(added, this.#callEnricher(enricher, event))
    return Object.keys(added).length === 0 ? null : maskSecretsIn(toJsonObject(added))
  }

  #callEnricher(
    enricher: SpanEnricher,
    event: BaseEvent,
  ): Readonly<Record<string, AttributeValue>> {
    try {
      const answer: unknown = enricher(event as TelemetryEvent)
      const problem = findProblem(answer)
      if (problem === null) return this.#readEntries(enricher, answer as object)
      this.#report(enricher, `is ignored: it ${problem}`)
    } catch (error) {
      this.#report(enricher, `is ignored: it threw: ${messageOf(error)}`)
    }
    return {}
  }

  /**
   * Returns the valid values of an answer. Reads each value only once, because a getter may throw.
   */
  #readEntries(enricher: SpanEnricher, answer: object): Readonly<Record<string, AttributeValue>> {
    const kept: Record<string, AttributeValue> = {}
    const keys = Object.keys(answer)
    for (const key of keys.slice(0, maxKeys)) {
      try {
        const value = (answer as Readonly<Record<string, unknown>>)[key]
        const problem = findValueProblem(key, value)
        if (problem === null) kept[key] = value as AttributeValue
        else this.#report(enricher, `: "${key}" is ignored: ${problem}`)
      } catch (error) {
        this.#report(enricher, `: "${key}" is ignored: it threw: ${messageOf(error)}`)
      }
    }
    if (keys.length > maxKeys) {
      const first = `"${keys[maxKeys]}" and all later keys are ignored`
      this.#report(enricher, `: ${first}: ${keys.length} keys (at most ${maxKeys})`)
    }
    return kept
  }

  #report(enricher: SpanEnricher, problem: string): void {
    const reported = this.#reported.get(enricher) ?? new Set()
    this.#reported.set(enricher, reported)
    if (reported.has(problem) || reported.size === maxReports) return
    reported.add(problem)
    const name = enricher.name === '' ? `#${this.#enrichers.indexOf(enricher) + 1}` : enricher.name
    const separator = problem.startsWith(':') ? '' : ' '
    this.#log.warn('SpanEnricherError', `span enricher ${name}${separator}${problem}`)
  }
}

function findProblem(answer: unknown): string | null {
  if (typeof answer !== 'object' || answer === null) return 'returned no object'
  if (answer instanceof Promise) {
    // The promise is ignored, but its rejection must not crash the process.
    answer.catch(() => {})
    return 'returned a promise'
  }
  return Array.isArray(answer) ? 'returned an array' : null
}

function findValueProblem(key: string, value: unknown): string | null {
  if (reservedKeys.has(key)) return 'the span already has this attribute'
  if (typeof value === 'number') return Number.isFinite(value) ? null : 'it is not a finite number'
  if (typeof value === 'string' || typeof value === 'boolean') return null
  return 'it is not a string, number or boolean'
}
