/** `tutti config check`: whether an inference configuration is valid, without loading a model. */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, isAbsolute } from 'node:path'
import { ConfigProblems, WrittenFile } from '../inference/config/config-tree.ts'
import { parseYamlTree } from '../inference/config/yaml-tree.ts'
import { loadInferenceConfig } from '../inference/index.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

/** Rejects with the problems of the file, each with its line, column and the nearest known key. */
export async function checkConfig(file: string, output: Output): Promise<number> {
  const config = await loadInferenceConfig(file)
  const { modelName, modelPath, engine, hardware, batching } = config
  // Relative paths were resolved: a name that is not absolute refers to the model hub.
  if (engine.kind === 'llama' && isAbsolute(modelPath) && !existsSync(modelPath)) {
    await refuseModel(file, `there is no file ${modelPath}`)
  }
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

/** Reports the problem in the same form as other problems of the file. */
async function refuseModel(file: string, problem: string): Promise<void> {
  const problems = new ConfigProblems({ kind: 'file', name: basename(file) })
  const written = new WrittenFile(parseYamlTree(await readFile(file, 'utf8'), problems), problems)
  written.refuse(['required', 'model_name'], problem)
  problems.throwIfAny()
}
