/** An engine's listener that keeps what comes, and lets a test wait for it or hold it back. */

import type {
  GenerationDelta,
  GenerationEnd,
  GenerationListener,
  ToolCall,
} from '../inference/generation/inference-engine.ts'
import { Waiters } from './waiters.ts'

/** What came of one request. */
export interface RecordedGeneration {
  readonly deltas: GenerationDelta[]
  readonly ends: GenerationEnd[]
  /** Deltas that came after an end. */
  late: number
}

/** Keeps everything by the request's id, also what an engine should not have said. */
export class GenerationRecorder implements GenerationListener {
  readonly #records = new Map<string, RecordedGeneration>()
  readonly #waiters = new Waiters()
  /** Called for every delta; the promise that it returns holds that request back. */
  onDelta: (id: string) => Promise<void> | undefined = () => undefined

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    const record = this.of(id)
    if (record.ends.length > 0) record.late++
    record.deltas.push(delta)
    this.#waiters.wake()
    return this.onDelta(id)
  }

  end(id: string, end: GenerationEnd): void {
    this.of(id).ends.push(end)
    this.#waiters.wake()
  }

  /** The ids that the engine spoke of. */
  get ids(): readonly string[] {
    return [...this.#records.keys()]
  }

  of(id: string): RecordedGeneration {
    const known = this.#records.get(id)
    if (known !== undefined) return known
    const record = { deltas: [], ends: [], late: 0 }
    this.#records.set(id, record)
    return record
  }

  textOf(id: string): string {
    return this.of(id)
      .deltas.map(({ text }) => text)
      .join('')
  }

  toolCallsOf(id: string): readonly ToolCall[] {
    return this.of(id).deltas.flatMap(({ toolCalls = [] }) => toolCalls)
  }

  hasEnded(id: string): boolean {
    return this.of(id).ends.length > 0
  }

  /** Resolves as soon as the condition holds after a delta or an end. */
  until(isMet: () => boolean): Promise<void> {
    return this.#waiters.until(isMet)
  }
}
