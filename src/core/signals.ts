/** Cancels tasks by their `AbortSignal`s. */

import { messageOf } from '../foundation/errors.ts'
import { AbortRegistry } from '../runtime/abort-registry.ts'
import type { Task } from '../tasks/task.ts'

type Cancel = (task: Task, reason: string) => void

export class SignalWatch {
  readonly #cancel: Cancel
  /** By then its signal is aborted. */
  readonly #leaving = new AbortRegistry<Task>((task) => this.watch(task))

  constructor(cancel: Cancel) {
    this.#cancel = cancel
  }

  /** Cancels it at once when its signal is aborted already. */
  watch(task: Task): void {
    const { signal } = task
    if (signal?.aborted === true) this.#cancel(task, reasonOf(signal))
    else if (signal !== null) this.#leaving.watch(signal, task)
  }

  forget(task: Task): void {
    if (task.signal !== null) this.#leaving.forget(task.signal, task)
  }
}

function reasonOf(signal: AbortSignal): string {
  const { reason } = signal as { reason: unknown }
  return reason === undefined ? 'aborted' : messageOf(reason)
}
