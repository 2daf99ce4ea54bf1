/** `tutti config check`: checks an inference configuration, without loading a model. */

import { basename, isAbsolute } from 'node:path'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { ConfigProblems, ConfigDocument } from '../inference/config/config-tree.ts'
import { parseYamlTree } from '../inference/config/yaml-tree.ts'
import { findDescriptor } from '../inference/engines/engines.ts'
import { loadInferenceConfig } from '../inference/index.ts'
import { findModelProblem } from '../inference/models/gguf-file.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

/** Rejects with all problems of the file, each with its line and column. */
export async function checkConfig(file: string, output: Output): Promise<number> {
  const config = await loadInferenceConfig(file)
  const { modelName, modelPath, engine, hardware, batching, guardrails } = config
  const problems: FoundProblem[] = []
  // A name that is not an absolute path refers to the model hub.
  if (engine.kind === 'llama' && isAbsolute(modelPath)) {
    const problem = await findModelProblem(modelPath)
    if (problem !== null) problems.push({ keys: ['required', 'model_name'], problem })
  }
  if (findDescriptor(engine).nodes === 'this' && hardware.numNodes > 1) {
    const problem = `expected 1: the ${engine.kind} engine runs workers on this node only`
    problems.push({ keys: ['hardware', 'num_nodes'], problem })
  }
  if (problems.length > 0) throwProblems(file, problems)
  const value = {
    path: file,
    model_name: modelName,
    engine: engine.kind,
    workers: hardware.numInfWorkers,
    max_batch_size: batching.maxBatchSize,
    guardrails: guardrails.isOn,
  }
  output.result(value, [
    `${file} is valid: ${modelName} with the engine ${engine.kind}, ` +
      `${value.workers} worker${value.workers === 1 ? '' : 's'}, ` +
      `batches of up to ${value.max_batch_size}, guardrails ${guardrails.isOn ? 'on' : 'off'}`,
  ])
  return exitCodes.ok
}

interface FoundProblem {
  readonly keys: readonly [section: string, key: string]
  readonly problem: string
}

function throwProblems(file: string, found: readonly FoundProblem[]): void {
  const problems = new ConfigProblems({ kind: 'file', name: basename(file) })
  const written = new ConfigDocument(parseYamlTree(readTextFileSync(file), problems), problems)
  for (const { keys, problem } of found) written.addProblem(keys, problem)
  problems.throwIfAny()
}
