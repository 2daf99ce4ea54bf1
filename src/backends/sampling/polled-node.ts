/** Polls one node: calls its sampler and emits the events. */

import { hostname } from 'node:os'
import { stampEvent } from '../../events/event.ts'
import { type ResourceReadings, ResourceUpdate } from '../../events/resource-update.ts'
import type { EventSink } from '../../events/sink.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { expectInteger, expectNumber } from '../../foundation/options.ts'
import type { LoopDelay } from './loop-delay.ts'
import { readTimeoutMs, withReadTimeout } from './sampler.ts'
import { type ResourceSample, type ResourceSampler, unknownReadings } from './sampler.ts'

export interface PolledNodeOptions {
  readonly backend: string
  readonly nodeId: string
  readonly sampler: ResourceSampler
}

/** The parts of the poller that a node needs. */
export interface PolledNodeContext {
  /** Measures this process's event loop, for samples of its own host. Default: not measured. */
  readonly loopDelay?: Pick<LoopDelay, 'readMaxMs'>
  readonly clock: Clock
  readonly sink: EventSink
  readonly sessionId: string
  readonly log: Log
}

/**
 * A longer call causes a warning. Samplers have shorter limits of their own, with more precise
 * errors.
 */
const hungAfterMs = 2 * readTimeoutMs

/** Makes one call at a time. No method rejects. A failing sampler is reported once. */
export class PolledNode {
  readonly #node: PolledNodeOptions
  readonly #context: PolledNodeContext
  #running: { readonly done: Promise<void>; readonly sinceMs: number } | undefined
  #isPriming = false
  #isPollDue = false
  #isClosed = false
  #isWarned = false
  #isHung = false

  constructor(node: PolledNodeOptions, context: PolledNodeContext) {
    this.#node = node
    this.#context = context
  }

  prime(): void {
    this.#isPriming = true
    this.#run(() => this.#node.sampler.prime())
  }

  /** Polls as soon as the sampler is primed. Does nothing while the previous poll runs. */
  poll(): void {
    this.#isPollDue = this.#isPriming
    if (this.#running === undefined) {
      this.#run(() => this.#sample())
    } else if (this.#context.clock.monotonicMs() - this.#running.sinceMs > hungAfterMs) {
      this.#warn('does not answer: its polls are skipped')
    }
  }

  /** Polls after the running call has ended. Resolves when the events are emitted. */
  async pollFinally(): Promise<void> {
    await this.waitUntilIdle()
    if (this.#isHung) return
    this.poll()
    await this.waitUntilIdle()
  }

  /** Resolves when no call is running, or after 2 s. Waits only once for a call that hangs. */
  async waitUntilIdle(): Promise<void> {
    if (this.#running === undefined || this.#isHung) return
    await withReadTimeout(this.#context.clock, this.#running.done).catch(() => {
      this.#isHung = true
    })
  }

  /** Stops the emission of events. Resolves when the sampler is closed, or after 2 s. */
  async close(): Promise<void> {
    this.#isClosed = true
    try {
      const closed = this.waitUntilIdle().then(() => this.#node.sampler.close())
      await withReadTimeout(this.#context.clock, closed)
    } catch (error) {
      this.#warn(`could not be closed: ${messageOf(error)}`)
    }
  }

  #run(call: () => Promise<void>): void {
    const run = async (): Promise<void> => {
      try {
        await call()
      } catch (error) {
        this.#warn(`failed: ${messageOf(error)}`)
      } finally {
        this.#running = undefined
        this.#isHung = false
        this.#isPriming = false
        if (this.#isPollDue && !this.#isClosed) this.poll()
      }
    }
    const sinceMs = this.#context.clock.monotonicMs()
    this.#running = { done: Promise.resolve().then(run), sinceMs }
  }

  async #sample(): Promise<void> {
    try {
      this.#emit(await this.#node.sampler.sample())
    } catch (error) {
      this.#emit({ node: unknownReadings, gpus: [] })
      throw error
    }
  }

  #emit(sample: ResourceSample): void {
    if (!this.#isClosed) emitSample(this.#context, this.#node, sample, this.#readLoopDelay())
  }

  #readLoopDelay(): number | null {
    const isOwnHost = this.#node.nodeId === hostname()
    return isOwnHost ? (this.#context.loopDelay?.readMaxMs() ?? null) : null
  }

  #warn(problem: string): void {
    if (this.#isWarned) return
    this.#isWarned = true
    const { backend, nodeId } = this.#node
    const message = `The resource sampler of node "${nodeId}" (backend "${backend}") ${problem}`
    this.#context.log.warn('SamplerFailed', message)
  }
}

/**
 * Emits the 1 + N ResourceUpdate events of a node with N GPUs. `loopDelayMs` is the event loop
 * delay of the session's process, if that process runs on the node.
 */
export function emitSample(
  { clock, sink, sessionId }: PolledNodeContext,
  { backend, nodeId }: Omit<PolledNodeOptions, 'sampler'>,
  sample: ResourceSample,
  loopDelayMs: number | null = null,
): void {
  expectSample(sample)
  const event_time = sample.at ?? clock.now()
  const origin = { session_id: sessionId, backend, node_id: nodeId, event_time }
  const { runCpuPercent = null } = sample
  const known = Object.freeze({
    ...(runCpuPercent === null ? {} : { run_cpu_percent: runCpuPercent }),
    ...(loopDelayMs === null ? {} : { loop_delay_ms: loopDelayMs }),
  })
  const hasKnownReadings = Object.keys(known).length > 0
  for (const readings of toReadings(sample)) {
    const more = readings.gpu_id === null && hasKnownReadings ? { attributes: known } : {}
    sink.emit(stampEvent(ResourceUpdate, clock, { ...origin, ...more, ...readings }))
  }
}

/** Validates a sample: a wrong value from a third-party backend would make the record invalid. */
function expectSample({ at, node, gpus, runCpuPercent = null }: ResourceSample): void {
  if (at !== undefined) expectNumber('sample.at', at, { min: 0 })
  const { cpu_percent, memory_percent, ...bytes } = node
  for (const [name, value] of Object.entries({ cpu_percent, memory_percent })) {
    if (value !== null) expectNumber(`sample.node.${name}`, value, { min: 0, max: 100 })
  }
  if (runCpuPercent !== null) {
    expectNumber('sample.runCpuPercent', runCpuPercent, { min: 0, max: 100 })
  }
  for (const [name, value] of Object.entries(bytes)) {
    if (value !== null) expectNumber(`sample.node.${name}`, value, { min: 0 })
  }
  for (const [index, { gpu_id, gpu_percent }] of gpus.entries()) {
    expectInteger(`sample.gpus[${index}].gpu_id`, gpu_id, { min: 0 })
    if (gpu_percent === null) continue
    expectNumber(`sample.gpus[${index}].gpu_percent`, gpu_percent, { min: 0, max: 100 })
  }
}

/** Returns the readings of the node, including its busiest GPU, and then those of each GPU. */
function toReadings({ node, gpus }: ResourceSample): ResourceReadings[] {
  const known = gpus.map((gpu) => gpu.gpu_percent).filter((percent) => percent !== null)
  const busiest = known.length === 0 ? null : Math.max(...known)
  return [
    { gpu_id: null, gpu_percent: busiest, ...node },
    ...gpus.map((gpu) => ({ ...unknownReadings, ...gpu })),
  ]
}
