/** Chooses the settings of a model by new or remembered measurements. */

import type { Clock } from '../../../../foundation/clock.ts'
import { findTuningFile, readTuningFile, type TuningKey, writeTuningFile } from './tuning-file.ts'
import {
  chooseTuning,
  describeTuning,
  type Measurements,
  type Tuning,
  type TuningFacts,
} from './tuning.ts'

export interface TuneOptions {
  readonly key: TuningKey
  /** The folder in which measurements are stored. */
  readonly folder: string
  /** Whether new measurements are remembered. Called when they are complete. */
  readonly isKept: () => boolean
  readonly facts: TuningFacts
  readonly clock: Clock
  measure(): Promise<Measurements>
}

export interface TunedSettings {
  readonly tuning: Tuning
  /** The settings and the measurements in one line; `null` if there was nothing to choose. */
  readonly report: string | null
}

export async function tune(options: TuneOptions): Promise<TunedSettings> {
  const { key, clock, isKept, facts } = options
  const { cacheBytes } = facts
  const { threads, flashAttention, batchSize } = key.fixed
  const choose = (measured: Measurements): Tuning =>
    chooseTuning(measured, key.fixed, { maxThreads: key.maxThreads, cacheBytes })
  if (threads !== null && flashAttention !== 'auto' && batchSize !== null) {
    return { tuning: choose({ threads: [], attention: null, prompts: [] }), report: null }
  }
  const file = await findTuningFile(options.folder, key)
  const known = readTuningFile(file)
  const beganMs = clock.monotonicMs()
  const measured = known ?? (await options.measure())
  const ms = Math.round(clock.monotonicMs() - beganMs)
  if (known === null && isKept()) await writeTuningFile(file, measured)
  const tuning = choose(measured)
  const source = known === null ? `measured in ${ms} ms` : 'measured at an earlier start'
  return { tuning, report: `${describeTuning(tuning, measured, facts)} (${source})` }
}
