/**
 * Steps all running requests of one model together. llama.cpp evaluates adjacent sequences in one
 * pass only if they are requested in ascending order, so requests join and leave between steps.
 */

import type { Clock } from '../../../foundation/clock.ts'
import { Generation } from './generation.ts'
import { PromptPreparer } from './prepared-prompt.ts'
import type { Failure, PlainRequest, RequestUpdate } from './protocol.ts'
import type { LlamaRuntime, Vocabulary } from './runtime.ts'

export interface StepLoopOptions {
  readonly runtime: LlamaRuntime
  readonly clock: Clock
  readonly report: (update: RequestUpdate) => void
  /** Called after every step and before the loop pauses; the loop awaits the returned promise. */
  readonly stepped: (isLast: boolean) => Promise<void> | undefined
}

/** The target duration of a pass with prompt tokens, once the model's speed is known. */
const maxPassMs = 2000
/** The number of prompt tokens in a pass before the speed is known. */
const firstPassTokens = 128

export class StepLoop {
  readonly #options: StepLoopOptions
  readonly #preparer: PromptPreparer
  /**
   * The request in each slot. Used slots are adjacent, unless a slot with a shared prefix saves
   * more.
   */
  readonly #running: (Generation | null)[]
  /** For each slot, the sequence number of the last request that used it; 0 for none. */
  readonly #lastUsed: number[]
  #admitted = 0
  #waiting: Generation[] = []
  /** The maximum number of prompt tokens in the next pass. */
  #promptTokens: number
  #isRunning = false
  /** Set when requests were added or changed while the loop was running. */
  #hasWork = false

  constructor(options: StepLoopOptions) {
    this.#options = options
    this.#preparer = new PromptPreparer(options.runtime)
    this.#running = options.runtime.slots.map(() => null)
    this.#lastUsed = options.runtime.slots.map(() => 0)
    this.#promptTokens = Math.min(options.runtime.batchSize, firstPassTokens)
  }

  add(requests: readonly PlainRequest[]): void {
    const { runtime, report } = this.#options
    for (const request of requests) {
      const prepared = unknownBias(request, runtime.vocabulary) ?? this.#preparer.prepare(request)
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
    return this.#running.find(isIt) ?? this.#waiting.find(isIt)
  }

  #wake(): void {
    this.#hasWork = true
    if (this.#isRunning) return
    this.#isRunning = true
    void this.#run()
  }

  async #run(): Promise<void> {
    for (;;) {
      this.#hasWork = false
      await this.#removeEnded()
      await this.#admit()
      const steps = this.#plan()
      await this.#evaluate(steps)
      const isLast = steps.length === 0
      await this.#options.stepped(isLast)
      if (isLast && !this.#hasWork) break
    }
    this.#isRunning = false
    this.#preparer.forget()
  }

  /**
   * Adapts the number of prompt tokens per pass, so that a slow model is not silent for too long.
   */
  async #evaluate(steps: readonly Step[]): Promise<void> {
    const { clock, runtime } = this.#options
    const beganMs = clock.monotonicMs()
    await Promise.all(steps.map(({ generation, max }) => generation.step(max)))
    const tokens = steps.reduce((sum, { max }) => sum + max, 0)
    const tookMs = Math.max(1, clock.monotonicMs() - beganMs)
    if (tokens < this.#promptTokens / 2) return
    const fitting = Math.floor((tokens * maxPassMs) / tookMs)
    const max = Math.min(runtime.batchSize, 2 * this.#promptTokens)
    this.#promptTokens = Math.max(1, Math.min(fitting, max))
  }

  async #removeEnded(): Promise<void> {
    for (const [at, generation] of this.#running.entries()) {
      if (generation?.hasEnded !== true) continue
      await generation.leave()
      this.#running[at] = null
    }
  }

  /**
   * Admits requests in order of arrival. Prompts that fit into one pass get slots by length, the
   * longest prompt the lowest slot. Requests that still run when the shorter ones have finished are
   * then adjacent.
   */
  async #admit(): Promise<void> {
    this.#waiting = this.#waiting.filter((generation) => !generation.hasEnded)
    const free = this.#running.filter((generation) => generation === null).length
    const next = this.#waiting.splice(0, free)
    const tokens = next.reduce((sum, { tokensToTake }) => sum + tokensToTake, 0)
    if (tokens <= this.#options.runtime.batchSize) {
      next.sort((one, other) => other.tokensToTake - one.tokensToTake)
    }
    await Promise.all(next.map((generation) => this.#start(generation)))
  }

  /**
   * Starts a request in a slot that has already evaluated a part of its prompt, if that saves time.
   */
  async #start(generation: Generation): Promise<void> {
    const { slots } = this.#options.runtime
    const free = slots.flatMap((slot, at) => {
      if (this.#running[at] !== null) return []
      const shared = generation.sharedWith(slot)
      return [{ at, shared, lastUsed: this.#lastUsed[at] ?? 0, slot }]
    })
    const running = this.#running.flatMap((one, at) => (one === null ? [] : [at]))
    const chosen = chooseSlot(free, new Set(running), generation.maxTokens)
    if (chosen === undefined) throw new Error('no slot is free')
    this.#running[chosen.at] = generation
    this.#lastUsed[chosen.at] = ++this.#admitted
    await generation.begin(chosen.slot)
  }

  /**
   * All prompts together get no more tokens than a batch holds, so that a long prompt does not
   * delay other requests.
   *
   * Requests that get their next token in the same pass evaluate equally many tokens in it; the
   * last token of other prompts waits for the next pass. The reason: llama.cpp computes shorter
   * sequences first and sorts the results when they are first read, and node-llama-cpp reads them
   * in several threads. If they were sorted twice, requests would get each other's tokens.
   */
  #plan(): readonly Step[] {
    let left = this.#promptTokens
    const steps: Step[] = []
    for (const generation of this.#running) {
      if (generation === null || generation.isHeld || generation.hasEnded) continue
      const max = generation.tokensOfStep(left)
      if (max === 0 && generation.tokensToTake > 0) continue
      left -= max
      steps.push({ generation, max })
    }
    const lengths = new Set(steps.filter(givesToken).map(({ max }) => Math.max(1, max)))
    if (lengths.size <= 1) return steps
    return steps.map((step) =>
      givesToken(step) && step.max > 1 ? { ...step, max: step.max - 1 } : step,
    )
  }
}

/** Returns a failure if `logit_bias` names a token that the model does not have. */
function unknownBias({ sampling }: PlainRequest, { size }: Vocabulary): Failure | undefined {
  const unknown = Object.keys(sampling.logitBias).find((token) => Number(token) >= size)
  if (unknown === undefined) return undefined
  const message = `Invalid key in 'logit_bias': ${unknown}. The model has ${size} tokens.`
  return { code: 'unsupported', message, param: 'logit_bias' }
}

interface Step {
  readonly generation: Generation
  /** The maximum number of prompt tokens that the request may evaluate. */
  readonly max: number
}

/** Whether the step evaluates the rest of the prompt and thus generates a token. */
const givesToken = ({ generation, max }: Step): boolean => max === generation.tokensToTake

/** A slot that no request is using. */
export interface FreeSlot {
  readonly at: number
  /** The number of prompt tokens that the slot has already evaluated. */
  readonly shared: number
  /** The sequence number of the last request that used the slot; 0 if it was never used. */
  readonly lastUsed: number
}

/** Fewer shared tokens are ignored, because all prompts have the same first token. */
const minShared = 8
/** The number of prompt tokens that take as long as one more pass. */
const tokensOfPass = 8
/**
 * The maximum number of steps that a gap is expected to last, because a neighbour may end earlier.
 */
const maxSteps = 64

/**
 * llama.cpp evaluates adjacent slots in one pass, so each gap between running slots costs a pass at
 * every step. A slot with a common prefix is worth the tokens that it saves minus the cost of its
 * position. Among equal slots, one that closes a gap is preferred, then the least recently used
 * slot, whose tokens are the least likely to be reused.
 */
export function chooseSlot<Slot extends FreeSlot>(
  free: readonly Slot[],
  running: ReadonlySet<number>,
  answerTokens: number,
): Slot | undefined {
  const costOfGap = tokensOfPass * Math.min(answerTokens, maxSteps)
  const [lowest, highest] = [Math.min(...running), Math.max(...running)]
  const worth = ({ at, shared }: FreeSlot): number => {
    const neighbours = Number(running.has(at - 1)) + Number(running.has(at + 1))
    return (shared < minShared ? 0 : shared) + costOfGap * neighbours
  }
  const isInGap = ({ at }: FreeSlot): number => Number(at > lowest && at < highest)
  const [best] = free.toSorted(
    (one, other) =>
      worth(other) - worth(one) ||
      isInGap(other) - isInGap(one) ||
      one.lastUsed - other.lastUsed ||
      one.at - other.at,
  )
  return best
}
