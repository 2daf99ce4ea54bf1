/** One running request: passes its news on to the listener, as fast as the reader takes it. */

import { inferenceError } from '../../generation/inference-errors.ts'
import type {
  GenerationEnd,
  GenerationListener,
  GenerationRequest,
} from '../../generation/inference-engine.ts'
import type { News, PlainEnd, ToLlama } from './protocol.ts'

export interface RecipientOptions {
  readonly request: GenerationRequest
  readonly listener: GenerationListener
  readonly send: (message: ToLlama) => void
  /** Called once, after the listener got the end. */
  readonly onEnd: () => void
  /** Called instead when the process is lost: the listener gets no end. */
  readonly onLoss: (error: unknown) => void
}

export class Recipient {
  readonly #options: RecipientOptions
  /** News that came while the reader was busy; the process pauses the request soon after. */
  #late: News[] | null = null
  #isOver = false
  readonly #abort = (): void => this.#cancel()

  constructor(options: RecipientOptions) {
    this.#options = options
    options.request.signal.addEventListener('abort', this.#abort, { once: true })
  }

  receive(news: News): void {
    if (this.#late === null || this.#isAborted()) this.#pass(news)
    else this.#late.push(news)
  }

  /** Ends it; later news are ignored. */
  end(end: GenerationEnd): void {
    if (this.#isOver) return
    const { request, listener, onEnd } = this.#options
    this.#close()
    listener.end(request.id, end)
    onEnd()
  }

  /** The process is lost: the batch fails as a whole. */
  lose(error: unknown): void {
    if (this.#isOver) return
    this.#close()
    this.#options.onLoss(error)
  }

  #close(): void {
    this.#isOver = true
    this.#options.request.signal.removeEventListener('abort', this.#abort)
  }

  #isAborted(): boolean {
    return this.#options.request.signal.aborted
  }

  /** After an abort, text is dropped; only the end is passed on. */
  #cancel(): void {
    this.#options.send({ kind: 'cancel', id: this.#options.request.id })
    const late = this.#late ?? []
    this.#late = null
    for (const news of late) this.#pass(news)
  }

  #pass({ delta, end }: News): void {
    if (this.#isOver) return
    const { request, listener } = this.#options
    if (delta !== undefined && !this.#isAborted()) {
      const wait = listener.delta(request.id, delta)
      if (wait !== undefined) this.#hold(wait)
    }
    // The process may have finished the text before it received the abort; with its last deltas
    // dropped, it is not a whole result.
    if (end !== undefined) this.end(this.#isAborted() ? { kind: 'canceled' } : toEnd(end))
  }

  #hold(wait: Promise<void>): void {
    const { request, send } = this.#options
    this.#late = []
    send({ kind: 'hold', id: request.id })
    const resume = (): void => {
      const late = this.#late
      if (late === null || this.#isOver) return
      this.#late = null
      send({ kind: 'resume', id: request.id })
      for (const news of late) this.receive(news)
    }
    wait.then(resume, resume)
  }
}

function toEnd(end: PlainEnd): GenerationEnd {
  if (end.kind !== 'failed') return end
  const { code, message, hint } = end.failure
  const error = inferenceError(code, message, hint === undefined ? {} : { hint })
  return { kind: 'failed', error }
}
