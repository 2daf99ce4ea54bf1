import { describe, expect, it } from 'vitest'
import {
  type BatchPolicy,
  decideBatch,
  type WorkerLoad,
} from '../../../src/inference/generation/batch-policy.ts'

const adaptive: BatchPolicy = {
  type: 'adaptive',
  maxBatchSize: 8,
  maxBatchWaitMs: 500,
  isOn: true,
}
const fixed: BatchPolicy = { ...adaptive, type: 'fixed' }

const worker = (
  admits: 'batch' | 'step',
  slots: number,
  running = 0,
  isDraining = false,
): WorkerLoad => ({ capacity: { admits, slots }, running, isDraining })

const line = (queued: number, waitMs = 0, isUrgent = false, keepsSlot = false) => ({
  queued,
  oldestArrivalMs: 1000,
  nowMs: 1000 + waitMs,
  isUrgent,
  keepsSlot,
})

/** `[worker, size]`, the time of the next decision, or `idle`. */
function decide(policy: BatchPolicy, waiting: ReturnType<typeof line>, ...workers: WorkerLoad[]) {
  const decision = decideBatch(policy, waiting, workers)
  if (decision.kind === 'send') return [workers.indexOf(decision.worker), decision.size]
  return decision.kind === 'wait' ? decision.untilMs : 'idle'
}

describe('the adaptive policy', () => {
  it('the adaptive policy sends queued requests immediately, as many as fit', () => {
    expect(decide(adaptive, line(1), worker('batch', 64))).toEqual([0, 1])
    expect(decide(adaptive, line(20), worker('batch', 64))).toEqual([0, 8])
    expect(decide(adaptive, line(20), worker('batch', 3))).toEqual([0, 3])
    expect(decide(adaptive, line(20), worker('step', 4, 3))).toEqual([0, 1])
  })

  it('the adaptive policy sends nothing while the queue is empty or no worker has room', () => {
    expect(decide(adaptive, line(0), worker('batch', 64))).toBe('idle')
    expect(decide(adaptive, line(5))).toBe('idle')
    expect(decide(adaptive, line(5, 9999), worker('batch', 64, 1))).toBe('idle')
    expect(decide(adaptive, line(5), worker('step', 4, 4))).toBe('idle')
    expect(decide(adaptive, line(5), worker('step', 4, 0, true))).toBe('idle')
  })

  it('the adaptive policy keeps one slot of all workers free, if there are at least eight', () => {
    const kept = line(20, 0, false, true)
    expect(decide(adaptive, kept, worker('step', 8))).toEqual([0, 7])
    expect(decide(adaptive, kept, worker('step', 8, 7))).toBe('idle')
    expect(decide(adaptive, kept, worker('step', 4, 3), worker('step', 4, 3))).toEqual([0, 1])
    expect(decide(adaptive, kept, worker('step', 4, 4), worker('step', 4, 3))).toBe('idle')
    expect(decide(adaptive, kept, worker('step', 7, 6))).toEqual([0, 1])
    expect(decide({ ...adaptive, isOn: false }, kept, worker('step', 8, 7))).toBe('idle')
    expect(decide(adaptive, kept, worker('batch', 8))).toEqual([0, 8])
    expect(decide(fixed, kept, worker('step', 8, 7))).toEqual([0, 1])
  })

  it('the adaptive policy distributes requests evenly over step workers', () => {
    const [idle, busy] = [worker('step', 8), worker('step', 8, 6)]
    expect(decide(adaptive, line(6), idle, worker('step', 8))).toEqual([0, 3])
    expect(decide(adaptive, line(6), busy, idle)).toEqual([1, 6])
    expect(decide(adaptive, line(7), worker('step', 8, 2), idle)).toEqual([1, 5])
  })
})

describe('the fixed policy', () => {
  it('the fixed policy waits until a batch is full or its oldest request is at the maximum', () => {
    expect(decide(fixed, line(7, 499), worker('batch', 64))).toBe(1500)
    expect(decide(fixed, line(8, 0), worker('batch', 64))).toEqual([0, 8])
    expect(decide(fixed, line(7, 500), worker('batch', 64))).toEqual([0, 7])
    expect(decide(fixed, line(7, 0, true), worker('batch', 64))).toEqual([0, 7])
  })

  it('a batch that fills its worker counts as full', () => {
    expect(decide(fixed, line(4), worker('batch', 4))).toEqual([0, 4])
  })

  it('the fixed policy sends nothing while no worker has room, even after the maximum wait', () => {
    expect(decide(fixed, line(8, 501), worker('batch', 64, 8))).toBe('idle')
  })
})

describe('batching that is off', () => {
  it('batching that is off sends each request alone and immediately', () => {
    expect(decide({ ...fixed, isOn: false }, line(8), worker('step', 4))).toEqual([0, 1])
  })
})
