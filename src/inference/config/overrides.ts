/** Options that take precedence over the file, checked against the same ranges. */

import {
  expectInteger,
  expectKnownKeys,
  expectObject,
  expectString,
} from '../../foundation/options.ts'
import type { InferenceOverrides } from './inference-config.ts'

/** Ranges of values that both the file and the options may set. */
export const sharedRanges = {
  numNodes: { min: 1, max: 65_536 },
  numGpus: { min: 0, max: 1024 },
  tpSize: { min: 1, max: 1024 },
  offset: { min: 0, max: 65_535 },
  maxBatchSize: { min: 1, max: 65_536 },
  maxBatchWaitMs: { min: 0, max: 3_600_000 },
} as const

type Counted = keyof typeof sharedRanges

const counted = Object.keys(sharedRanges) as Counted[]

/**
 * The same options, checked and without `undefined`; a `ValueError` names the wrong one. Keys of
 * the engine are not checked here: see `expectEngineOption`.
 */
export function resolveOverrides(overrides: InferenceOverrides): InferenceOverrides {
  const given = expectObject('overrides', overrides)
  expectKnownKeys('InferenceOverrides', given, ['modelName', 'engine', ...counted])
  const resolved: { -readonly [K in keyof InferenceOverrides]: InferenceOverrides[K] } = {}
  if (given['modelName'] !== undefined) {
    resolved.modelName = expectString('modelName', given['modelName'])
  }
  for (const name of counted) {
    if (given[name] === undefined) continue
    resolved[name] = expectInteger(name, given[name], sharedRanges[name])
  }
  if (overrides.engine !== undefined) resolved.engine = overrides.engine
  return resolved
}
