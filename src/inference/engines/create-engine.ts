/** Creates the engine that the configuration names. */

import { homedir } from 'node:os'
import { join } from 'node:path'
import type { InferenceConfig } from '../config/inference-config.ts'
import type { CreateEngine, EngineWorker, InferenceEngine } from '../generation/inference-engine.ts'
import type { ResolvedInferenceOptions } from '../inference-options.ts'
import { createEchoEngine } from './echo.ts'
import { createLlamaEngine } from './llama.ts'
import { createOpenAiEngine } from './openai.ts'
import { createProcessEngine } from './process.ts'

type EngineEnvironment = Pick<ResolvedInferenceOptions, 'clock' | 'log' | 'onProgress'>

export function createEngineFactory(
  config: InferenceConfig,
  environment: EngineEnvironment,
): CreateEngine {
  return (worker) => createEngine(config, environment, worker)
}

function createEngine(
  config: InferenceConfig,
  { clock, log, onProgress }: EngineEnvironment,
  worker: EngineWorker,
): InferenceEngine {
  const { modelName, engine, llm, tpSize, hardware, hubToken } = config
  const common = { modelName, contextLength: llm.maxModelLen, clock, log }
  switch (engine.kind) {
    case 'llama':
      return createLlamaEngine({
        ...common,
        ...engine,
        cacheDir: engine.cacheDir ?? defaultCache(),
        hubToken: hubToken?.reveal() ?? null,
        onProgress,
      })
    case 'openai':
      return createOpenAiEngine({ ...common, ...engine, apiKey: engine.apiKey?.reveal() ?? null })
    case 'process':
      return createProcessEngine(
        {
          ...common,
          ...engine,
          tpSize,
          dtype: llm.dtype,
          gpuMemoryUtilization: llm.gpuMemoryUtilization,
          numGpus: hardware.numGpus,
          nodeOffset: hardware.nodeOffset,
          host: '127.0.0.1',
          hubToken: hubToken?.reveal() ?? null,
          onProgress,
        },
        worker,
      )
    default:
      return createEchoEngine({ ...common, ...engine })
  }
}

/** The folder of downloaded models, in the cache folder of the user. */
const defaultCache = (): string =>
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tutti', 'models')
