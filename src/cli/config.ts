/** `tutti config check`: whether a configuration of inference is right, without loading a model. */

import { loadInferenceConfig } from '../inference/index.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

/** Rejects with the problems of the file: each has its line, its column and the nearest key. */
export async function checkConfig(file: string, output: Output): Promise<number> {
  const { modelName, engine, hardware, batching } = await loadInferenceConfig(file)
  const value = {
    path: file,
    model_name: modelName,
    engine: engine.kind,
    workers: hardware.numInfWorkers,
    max_batch_size: batching.maxBatchSize,
  }
  output.result(value, [
    `${file} is right: ${modelName} with the engine ${engine.kind}, ` +
      `${value.workers} worker${value.workers === 1 ? '' : 's'}, ` +
      `batches of up to ${value.max_batch_size}`,
  ])
  return exitCodes.ok
}
