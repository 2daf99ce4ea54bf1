/**
 * Cancels tasks by their `AbortSignal`s, with one listener a signal, however many tasks share it.
 */

import { messageOf } from '../foundation/errors.ts'
import type { Task } from '../tasks/task.ts'

type Cancel = (task: Task, reason: string) => void

export class SignalWatch {
  readonly #watched = new Map<AbortSignal, { tasks: Set<Task>; listener: () => void }>()
  readonly #cancel: Cancel

  constructor(cancel: Cancel) {
    this.#cancel = cancel
  }

  watch(task: Task): void {
    const { signal } = task
    if (signal === null) return
    if (signal.aborted) return this.#cancel(task, reasonOf(signal))
    let watched = this.#watched.get(signal)
    if (watched === undefined) {
      const listener = (): void => this.#fire(signal)
      watched = { tasks: new Set(), listener }
      this.#watched.set(signal, watched)
      signal.addEventListener('abort', listener, { once: true })
    }
    watched.tasks.add(task)
  }

  forget(task: Task): void {
    const { signal } = task
    const watched = signal === null ? undefined : this.#watched.get(signal)
    if (signal === null || watched === undefined) return
    watched.tasks.delete(task)
    if (watched.tasks.size > 0) return
    signal.removeEventListener('abort', watched.listener)
    this.#watched.delete(signal)
  }

  #fire(signal: AbortSignal): void {
    const tasks = [...(this.#watched.get(signal)?.tasks ?? [])]
    for (const task of tasks) this.#cancel(task, reasonOf(signal))
  }
}

function reasonOf(signal: AbortSignal): string {
  const { reason } = signal as { reason: unknown }
  return reason === undefined ? 'aborted' : messageOf(reason)
}
