/** Who leaves: one listener a signal, however many share it. */

interface Watched<T> {
  readonly all: Set<T>
  readonly listener: () => void
}

/** Node looks through all listeners of a signal to add one: many would cost their square. */
export class LeaveWatch<T> {
  readonly #watched = new Map<AbortSignal, Watched<T>>()
  readonly #onLeave: (who: T) => void

  /** `onLeave` is called for each whose signal aborts while it is watched. */
  constructor(onLeave: (who: T) => void) {
    this.#onLeave = onLeave
  }

  watch(signal: AbortSignal, who: T): void {
    const watched = this.#watched.get(signal) ?? this.#listen(signal)
    watched.all.add(who)
  }

  forget(signal: AbortSignal, who: T): void {
    const watched = this.#watched.get(signal)
    if (watched === undefined) return
    watched.all.delete(who)
    if (watched.all.size > 0) return
    signal.removeEventListener('abort', watched.listener)
    this.#watched.delete(signal)
  }

  #listen(signal: AbortSignal): Watched<T> {
    const all = new Set<T>()
    // The set itself: one that is forgotten while another leaves is not among them any more.
    const listener = (): void => all.forEach((who) => this.#onLeave(who))
    const watched = { all, listener }
    this.#watched.set(signal, watched)
    signal.addEventListener('abort', listener)
    return watched
  }
}
