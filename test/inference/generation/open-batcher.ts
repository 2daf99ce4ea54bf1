/** A batcher with one scripted worker, on a manual clock. */

import type { BatchPolicy } from '../../../src/inference/generation/batch-policy.ts'
import type { BatchReport } from '../../../src/inference/generation/batch-run.ts'
import { Batcher } from '../../../src/inference/generation/batcher.ts'
import type { EngineCapacity } from '../../../src/inference/generation/inference-engine.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { TestClient } from './test-client.ts'
import { plainScript, type Script, ScriptedWorker } from './scripted-worker.ts'

export const adaptive: BatchPolicy = {
  type: 'adaptive',
  maxBatchSize: 1024,
  maxBatchWaitMs: 500,
  isOn: true,
}

interface BatcherSetup {
  readonly policy?: BatchPolicy
  readonly capacity?: EngineCapacity
  readonly script?: (id: string) => Partial<Script>
  readonly queueLimit?: number
  readonly engineTimeoutMs?: number
}

export function open(setup: BatcherSetup = {}) {
  const clock = new ManualClock()
  const reports: BatchReport[] = []
  const batcher = new Batcher({
    clock,
    policy: setup.policy ?? adaptive,
    queueLimit: setup.queueLimit ?? 10_000,
    onBatchEnded: (report) => reports.push(report),
    engineTimeoutMs: setup.engineTimeoutMs ?? Infinity,
  })
  const capacity = setup.capacity ?? { admits: 'batch', slots: 4096 }
  const script = (id: string): Script => ({ ...plainScript, ...setup.script?.(id) })
  const addWorker = (workerId: string): ScriptedWorker => {
    const worker = new ScriptedWorker(clock, workerId, capacity, script)
    batcher.addWorker(worker)
    return worker
  }
  const send = (
    id: string,
    options: ConstructorParameters<typeof TestClient>[2] = {},
  ): TestClient => new TestClient(clock, id, options).send(batcher)
  const sendMany = (count: number): TestClient[] =>
    Array.from({ length: count }, (_, at) => send(`r${at}`))
  /** Advances the clock; dispatches before and after it. */
  const pass = async (ms: number): Promise<void> => {
    for (const step of [0, ms, 0]) await clock.advance(step)
  }
  return { clock, batcher, reports, addWorker, send, sendMany, pass, worker: addWorker('w0') }
}
