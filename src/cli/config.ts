/** `tutti config check`: whether an inference configuration is valid, without loading a model. */

import { basename, isAbsolute } from 'node:path'
import { errnoOf, messageOf } from '../foundation/errors.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { ConfigProblems, WrittenFile } from '../inference/config/config-tree.ts'
import { parseYamlTree } from '../inference/config/yaml-tree.ts'
import { descriptorOf } from '../inference/engines/engines.ts'
import { loadInferenceConfig } from '../inference/index.ts'
import { isGguf } from '../inference/models/gguf-file.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

/** Rejects with the problems of the file, each with its line, column and the nearest known key. */
export async function checkConfig(file: string, output: Output): Promise<number> {
  const config = await loadInferenceConfig(file)
  const { modelName, modelPath, engine, hardware, batching } = config
  const problems: FoundProblem[] = []
  // Relative paths were resolved: a name that is not absolute refers to the model hub.
  if (engine.kind === 'llama' && isAbsolute(modelPath)) {
    const problem = await modelProblem(modelPath)
    if (problem !== null) problems.push({ keys: ['required', 'model_name'], problem })
  }
  if (descriptorOf(engine).nodes === 'this' && hardware.numNodes > 1) {
    const problem = `expected 1: the ${engine.kind} engine runs workers on this node only`
    problems.push({ keys: ['hardware', 'num_nodes'], problem })
  }
  if (problems.length > 0) refuse(file, problems)
  const value = {
    path: file,
    model_name: modelName,
    engine: engine.kind,
    workers: hardware.numInfWorkers,
    max_batch_size: batching.maxBatchSize,
  }
  output.result(value, [
    `${file} is valid: ${modelName} with the engine ${engine.kind}, ` +
      `${value.workers} worker${value.workers === 1 ? '' : 's'}, ` +
      `batches of up to ${value.max_batch_size}`,
  ])
  return exitCodes.ok
}

interface FoundProblem {
  readonly keys: readonly [section: string, key: string]
  readonly problem: string
}

/** Why a file cannot be a model; `null` if it may be one. */
async function modelProblem(path: string): Promise<string | null> {
  try {
    return (await isGguf(path)) ? null : `${path} is not a GGUF file`
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return `there is no file ${path}`
    return `${path} cannot be read: ${messageOf(error)}`
  }
}

/** Reports the problems in the same form as other problems of the file. */
function refuse(file: string, found: readonly FoundProblem[]): void {
  const problems = new ConfigProblems({ kind: 'file', name: basename(file) })
  const written = new WrittenFile(parseYamlTree(readTextFileSync(file), problems), problems)
  for (const { keys, problem } of found) written.refuse(keys, problem)
  problems.throwIfAny()
}
