/**
 * Steps all answers of one model together. llama.cpp computes neighbouring sequences in one pass
 * only when they are asked for in ascending order, so nothing joins or leaves but between steps.
 */

import { Generation } from './generation.ts'
import { PromptPreparer } from './prepared-prompt.ts'
import type { News, PlainRequest } from './protocol.ts'
import type { LlamaRuntime } from './runtime.ts'

export interface StepLoopOptions {
  readonly runtime: LlamaRuntime
  readonly report: (news: News) => void
  /** After every step, and before the loop sleeps. May hold the loop back. */
  readonly stepped: (isLast: boolean) => Promise<void> | undefined
}

export class StepLoop {
  readonly #options: StepLoopOptions
  readonly #preparer: PromptPreparer
  /** In the order of the slots; the lowest free one is taken first, which keeps them dense. */
  readonly #seats: (Generation | null)[]
  #waiting: Generation[] = []
  #isRunning = false
  /** Something came while it ran. */
  #isCalled = false

  constructor(options: StepLoopOptions) {
    this.#options = options
    this.#preparer = new PromptPreparer(options.runtime)
    this.#seats = options.runtime.slots.map(() => null)
  }

  add(requests: readonly PlainRequest[]): void {
    const { runtime, report } = this.#options
    for (const request of requests) {
      const prepared = this.#preparer.prepare(request)
      if ('code' in prepared) {
        report({ id: request.id, end: { kind: 'failed', failure: prepared } })
      } else {
        this.#waiting.push(new Generation(request, prepared, runtime, report))
      }
    }
    this.#wake()
  }

  cancel(id: string): void {
    const generation = this.#find(id)
    if (generation === undefined) return
    generation.cancel()
    this.#wake()
  }

  setHeld(id: string, isHeld: boolean): void {
    const generation = this.#find(id)
    if (generation === undefined) return
    generation.isHeld = isHeld
    this.#wake()
  }

  #find(id: string): Generation | undefined {
    const isIt = (generation: Generation | null): boolean => generation?.id === id
    return this.#seats.find(isIt) ?? this.#waiting.find(isIt)
  }

  #wake(): void {
    this.#isCalled = true
    if (this.#isRunning) return
    this.#isRunning = true
    void this.#run()
  }

  async #run(): Promise<void> {
    for (;;) {
      this.#isCalled = false
      await this.#empty()
      await this.#admit()
      const steps = this.#plan()
      await Promise.all(steps.map(({ generation, most }) => generation.step(most)))
      const isLast = steps.length === 0
      await this.#options.stepped(isLast)
      if (isLast && !this.#isCalled) break
    }
    this.#isRunning = false
    this.#preparer.forget()
  }

  async #empty(): Promise<void> {
    for (const [at, generation] of this.#seats.entries()) {
      if (generation?.hasEnded !== true) continue
      await generation.leave()
      this.#seats[at] = null
    }
  }

  /**
   * First come, first seated. Prompts that one pass can take sit by length, the longest lowest:
   * when the shorter ones are through, those that still take theirs are neighbours.
   */
  async #admit(): Promise<void> {
    this.#waiting = this.#waiting.filter((generation) => !generation.hasEnded)
    const free = this.#seats.flatMap((seat, at) => (seat === null ? [at] : []))
    const next = this.#waiting.splice(0, free.length)
    const tokens = next.reduce((sum, { tokensToTake }) => sum + tokensToTake, 0)
    if (tokens <= this.#options.runtime.batchSize) {
      next.sort((one, other) => other.tokensToTake - one.tokensToTake)
    }
    await Promise.all(free.map((at, order) => this.#seat(at, next[order])))
  }

  async #seat(at: number, generation: Generation | undefined): Promise<void> {
    const slot = this.#options.runtime.slots[at]
    if (generation === undefined || slot === undefined) return
    this.#seats[at] = generation
    await generation.begin(slot)
  }

  /**
   * Who is stepped. All prompts together take no more than a batch, so that a long one does not
   * keep the others waiting.
   */
  #plan(): readonly Step[] {
    let left = this.#options.runtime.batchSize
    const steps: Step[] = []
    for (const generation of this.#seats) {
      if (generation === null || generation.isHeld || generation.hasEnded) continue
      const most = Math.min(left, generation.tokensToTake)
      if (most === 0 && generation.tokensToTake > 0) continue
      left -= most
      steps.push({ generation, most })
    }
    return steps
  }
}

interface Step {
  readonly generation: Generation
  /** Tokens of its prompt that it may take. */
  readonly most: number
}
