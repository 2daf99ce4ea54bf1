/**
 * Steps all running requests of one model together. llama.cpp evaluates adjacent sequences in one
 * pass only if they are submitted in ascending order. So a step submits all requests at once, and
 * requests join and leave only between steps.
 */

import type { Clock } from '../../../foundation/clock.ts'
import { Generation } from './generation.ts'
import { isSamePrompt, preparePrompt, type PrepareResult } from './prepared-prompt.ts'
import type { Failure, LlamaRequest, RequestUpdate } from './protocol.ts'
import type { LlamaRuntime, Slot, Vocabulary } from './runtime.ts'
import { longText } from './tuning/tuning.ts'

export interface StepLoopOptions {
  readonly runtime: LlamaRuntime
  readonly clock: Clock
  readonly onUpdate: (update: RequestUpdate) => void
  /** Called after every step and before the loop pauses. The loop awaits the returned promise. */
  readonly onStep: (isLast: boolean) => Promise<void> | undefined
}

/** The target duration of a pass with prompt tokens, once the model's speed is known. */
const maxPassMs = 2000
/** The number of prompt tokens in a pass before the speed is known. */
const firstPassTokens = 128

export class StepLoop {
  readonly #options: StepLoopOptions
  #lastPrepared: { readonly request: LlamaRequest; readonly result: PrepareResult } | null = null
  /** The slots for short prompts, and then those for long ones. */
  readonly #slots: readonly Slot[]
  /** The request in each slot, or `null`. Used slots are adjacent where that saves time. */
  readonly #running: (Generation | null)[]
  /** When each slot was last used, as the admission number of its request; 0 for never. */
  readonly #lastUsed: number[]
  #admittedCount = 0
  #waiting: Generation[] = []
  #maxPromptTokens: number
  #isRunning = false
  #hasWork = false

  constructor(options: StepLoopOptions) {
    this.#options = options
    this.#slots = [...options.runtime.slots, ...options.runtime.longSlots]
    this.#running = this.#slots.map(() => null)
    this.#lastUsed = this.#slots.map(() => 0)
    this.#maxPromptTokens = Math.min(options.runtime.batchSize, firstPassTokens)
  }

  add(requests: readonly LlamaRequest[]): void {
    const { runtime, onUpdate } = this.#options
    for (const request of requests) {
      const prepared = unknownBiasFailure(request, runtime.vocabulary) ?? this.#prepare(request)
      if ('code' in prepared) {
        onUpdate({ id: request.id, end: { kind: 'failed', failure: prepared } })
      } else {
        this.#waiting.push(new Generation(request, prepared, runtime, onUpdate))
      }
    }
    this.#wake()
  }

  /** Consecutive requests with equal prompts share one result, which never changes. */
  #prepare(request: LlamaRequest): PrepareResult {
    if (this.#lastPrepared === null || !isSamePrompt(this.#lastPrepared.request, request)) {
      this.#lastPrepared = { request, result: preparePrompt(request, this.#options.runtime) }
    }
    return this.#lastPrepared.result
  }

  cancel(id: string): void {
    const generation = this.#find(id)
    if (generation === undefined) return
    generation.cancel()
    this.#wake()
  }

  setPaused(id: string, isHeld: boolean): void {
    const generation = this.#find(id)
    if (generation === undefined) return
    generation.isPaused = isHeld
    this.#wake()
  }

  #find(id: string): Generation | undefined {
    const hasId = (generation: Generation | null): boolean => generation?.id === id
    return this.#running.find(hasId) ?? this.#waiting.find(hasId)
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
      const steps = this.#planSteps()
      await this.#evaluate(steps)
      const isLast = steps.length === 0
      await this.#options.onStep(isLast)
      if (isLast && !this.#hasWork) break
    }
    this.#isRunning = false
    this.#lastPrepared = null
  }

  /**
   * Runs the steps in one pass, then adapts the maximum number of prompt tokens to the speed, so
   * that no pass takes long.
   */
  async #evaluate(steps: readonly Step[]): Promise<void> {
    const { clock, runtime } = this.#options
    const beganMs = clock.monotonicMs()
    await Promise.all(steps.map(({ generation, max }) => generation.step(max)))
    const tokens = steps.reduce((sum, { max }) => sum + max, 0)
    const tookMs = Math.max(1, clock.monotonicMs() - beganMs)
    if (tokens < this.#maxPromptTokens / 2) return
    const fitting = Math.floor((tokens * maxPassMs) / tookMs)
    const max = Math.min(runtime.batchSize, 2 * this.#maxPromptTokens)
    this.#maxPromptTokens = Math.max(1, Math.min(fitting, max))
  }

  async #removeEnded(): Promise<void> {
    for (const [at, generation] of this.#running.entries()) {
      if (generation?.hasEnded !== true) continue
      await generation.releaseSlot()
      this.#running[at] = null
    }
  }

  /**
   * Starts waiting requests in free slots. If their prompts fit into one pass, longer prompts get
   * lower slots, so that the requests that run longest are adjacent.
   */
  async #admit(): Promise<void> {
    this.#waiting = this.#waiting.filter((generation) => !generation.hasEnded)
    const running = this.#running.filter((generation) => generation !== null).length
    const free = this.#options.runtime.slots.length - running
    const next = this.#waiting.splice(0, free)
    const tokens = next.reduce((sum, { promptTokensLeft }) => sum + promptTokensLeft, 0)
    if (tokens <= this.#options.runtime.batchSize) {
      next.sort((one, other) => other.promptTokensLeft - one.promptTokensLeft)
    }
    await Promise.all(next.map((generation) => this.#startInSlot(generation)))
  }

  async #startInSlot(generation: Generation): Promise<void> {
    const isSuited = this.#findSuited(generation)
    const free = this.#slots.flatMap((slot, index) => {
      if (!isSuited(index) || this.#running[index] !== null) return []
      const sharedTokens = generation.countShared(slot)
      return [{ index, sharedTokens, lastUsed: this.#lastUsed[index] ?? 0, slot }]
    })
    const running = this.#running.flatMap((one, at) => (one === null || !isSuited(at) ? [] : [at]))
    const chosen = chooseSlot(free, new Set(running), generation.maxTokens)
    if (chosen === undefined) throw new Error('no slot is free')
    this.#running[chosen.index] = generation
    this.#lastUsed[chosen.index] = ++this.#admittedCount
    await generation.begin(chosen.slot)
  }

  #findSuited({ promptTokensLeft }: Generation): (index: number) => boolean {
    const { slots, longSlots } = this.#options.runtime
    const isLong = longSlots.length > 0 && promptTokensLeft >= longText
    return (index) => index >= slots.length === isLong
  }

  /** Requests that get a token in this pass evaluate equally many tokens. See decision 7. */
  #planSteps(): readonly Step[] {
    let tokensLeft = this.#maxPromptTokens
    const steps: Step[] = []
    for (const generation of this.#running) {
      if (generation === null || generation.isPaused || generation.hasEnded) continue
      const max = generation.promptTokensInStep(tokensLeft)
      if (max === 0 && generation.promptTokensLeft > 0) continue
      tokensLeft -= max
      steps.push({ generation, max })
    }
    const lengths = new Set(steps.filter(completesPrompt).map(({ max }) => Math.max(1, max)))
    if (lengths.size <= 1) return steps
    return steps.map((step) =>
      completesPrompt(step) && step.max > 1 ? { ...step, max: step.max - 1 } : step,
    )
  }
}

function unknownBiasFailure({ sampling }: LlamaRequest, { size }: Vocabulary): Failure | undefined {
  const unknown = Object.keys(sampling.logitBias).find((token) => Number(token) >= size)
  if (unknown === undefined) return undefined
  const message = `Invalid key in 'logit_bias': ${unknown}. The model has ${size} tokens.`
  return { code: 'unsupported', message, param: 'logit_bias' }
}

interface Step {
  readonly generation: Generation
  readonly max: number
}

/** Whether the step evaluates the rest of the prompt and therefore generates a token. */
const completesPrompt = ({ generation, max }: Step): boolean => max === generation.promptTokensLeft

export interface FreeSlot {
  readonly index: number
  readonly sharedTokens: number
  readonly lastUsed: number
}

/** Fewer shared tokens are ignored, because all prompts have the same first token. */
const minSharedTokens = 8
/** The number of prompt tokens that take as long as one additional pass. */
const tokensPerPass = 8
/** The maximum number of steps that a gap is assumed to last, because a neighbor may end. */
const maxGapSteps = 64

/**
 * Chooses the free slot that saves most: a slot next to a running one saves a pass per step, and a
 * shared beginning of the prompt saves its tokens.
 */
export function chooseSlot<Free extends FreeSlot>(
  free: readonly Free[],
  running: ReadonlySet<number>,
  answerTokens: number,
): Free | undefined {
  const costOfGap = tokensPerPass * Math.min(answerTokens, maxGapSteps)
  const [lowest, highest] = [Math.min(...running), Math.max(...running)]
  const worth = ({ index, sharedTokens }: FreeSlot): number => {
    const neighbours = Number(running.has(index - 1)) + Number(running.has(index + 1))
    return (sharedTokens < minSharedTokens ? 0 : sharedTokens) + costOfGap * neighbours
  }
  const isInGap = ({ index }: FreeSlot): number => Number(index > lowest && index < highest)
  const [best] = free.toSorted(
    (one, other) =>
      worth(other) - worth(one) ||
      isInGap(other) - isInGap(one) ||
      one.lastUsed - other.lastUsed ||
      one.index - other.index,
  )
  return best
}
