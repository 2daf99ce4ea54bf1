/** Passes changes of tasks to telemetry, whose errors must not keep a task from its end. */

import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import type { Entry } from './entry.ts'
import { type Ending, type LifecycleEmitter, nullEmitter } from './lifecycle-emitter.ts'

export class GuardedEmitter implements LifecycleEmitter {
  readonly #log: Log
  #inner: LifecycleEmitter = nullEmitter
  #incompleteEvents = 0

  constructor(log: Log) {
    this.#log = log
  }

  /** From now on changes are passed to this emitter. */
  use(emitter: LifecycleEmitter): void {
    this.#inner = emitter
  }

  /** The number of changes that could not be described completely. */
  get incompleteEvents(): number {
    return this.#incompleteEvents
  }

  created(entry: Entry, time: number): void {
    try {
      this.#inner.created(entry, time)
    } catch (error) {
      this.#count(entry, error)
    }
  }

  changed(entry: Entry, ending: Ending): void {
    try {
      this.#inner.changed(entry, ending)
    } catch (error) {
      this.#count(entry, error)
    }
  }

  noticed(...args: Parameters<LifecycleEmitter['noticed']>): void {
    this.#inner.noticed(...args)
  }

  lateResult(): void {
    this.#inner.lateResult()
  }

  emit: LifecycleEmitter['emit'] = (eventClass, fields) => this.#inner.emit(eventClass, fields)

  #count({ task }: Entry, error: unknown): void {
    this.#incompleteEvents++
    if (this.#incompleteEvents > 1) return
    const text = `an event of task ${task.uid} has no details: ${messageOf(error)}`
    this.#log.warn('TaskEventIncomplete', `${text}; further ones are only counted`)
  }
}
