/** A poller with samplers and time of the test's making. */

import { ResourcePoller } from '../../../src/backends/sampling/poller.ts'
import {
  type ResourceSample,
  type ResourceSampler,
  unknownReadings,
} from '../../../src/backends/sampling/sampler.ts'
import type { SampledNode } from '../../../src/backends/backend.ts'
import type { BaseEvent } from '../../../src/events/event.ts'
import type { TimerOptions } from '../../../src/foundation/clock.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { RecordingSink } from '../../../src/testing/recorders.ts'

/** A sample of nothing but a processor. */
export const idle: ResourceSample = { node: { ...unknownReadings, cpu_percent: 1 }, gpus: [] }

/** Gives the samples of the test, and records its calls. */
export class FakeSampler implements ResourceSampler {
  readonly calls: string[] = []
  answer: () => Promise<ResourceSample> = async () => idle
  primes: () => Promise<void> = async () => {}

  prime(): Promise<void> {
    this.calls.push('prime')
    return this.primes()
  }

  sample(): Promise<ResourceSample> {
    this.calls.push('sample')
    return this.answer()
  }

  async close(): Promise<void> {
    this.calls.push('close')
  }
}

/** Time can pass unseen, as when a laptop sleeps. Remembers which timers keep a process alive. */
class SleepyClock extends ManualClock {
  sleptMs = 0
  readonly foregroundTimersMs: number[] = []

  override monotonicMs(): number {
    return super.monotonicMs() + this.sleptMs
  }

  override after(ms: number, callback: () => void, options?: TimerOptions): () => void {
    if (options?.background !== true) this.foregroundTimersMs.push(ms)
    return super.after(ms, callback)
  }
}

/** A poller on a manual clock, and everything that it emits. */
export function setUp(intervalSeconds?: number, host: SampledNode = { nodeId: 'own' }) {
  const clock = new SleepyClock()
  const sink = new RecordingSink()
  const warnings: string[] = []
  /** Its reports about nodes, besides the samples. */
  const nodeEvents: BaseEvent[] = []
  const poller = new ResourcePoller({
    clock,
    sink: {
      emit: (event) =>
        event.event_type === 'ResourceUpdate' ? sink.emit(event) : nodeEvents.push(event),
    },
    host,
    sessionId: 's1',
    log: { warn: (_, message) => warnings.push(message) },
    ...(intervalSeconds === undefined ? {} : { intervalSeconds }),
  })
  const add = (nodeId: string): FakeSampler => {
    const sampler = new FakeSampler()
    poller.addBackend('local', [{ nodeId, createSampler: () => sampler }])
    return sampler
  }
  return { clock, sink, nodeEvents, warnings, poller, add }
}
