/** An engine attached to a fixture server, both closed after the test. */

import { onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/foundation/clock.ts'
import {
  type AttachedEngine,
  createOpenAiEngine,
  type OpenAiEngineOptions,
} from '../../../../src/inference/engines/openai/openai-engine.ts'
import { RecordingGeneration } from '../generation.ts'
import { OpenAiServer, type OpenAiServerOptions } from './fixtures/openai-server.ts'

interface OpenedEngine {
  readonly server: OpenAiServer
  readonly engine: AttachedEngine
  readonly listener: RecordingGeneration
  /** The codes of the warnings. */
  readonly warnings: readonly string[]
}

export async function openEngine(
  serverOptions: Partial<OpenAiServerOptions> = {},
  options: Partial<OpenAiEngineOptions> = {},
): Promise<OpenedEngine> {
  const server = new OpenAiServer(serverOptions)
  await server.listen()
  onTestFinished(() => server.close())
  const warnings: string[] = []
  const engine = createOpenAiEngine({
    baseUrl: server.url,
    apiKey: null,
    modelName: 'tiny',
    maxConcurrency: 4,
    contextLength: 2048,
    clock: systemClock,
    log: { warn: (code) => warnings.push(code) },
    ...options,
  })
  onTestFinished(() => engine.close())
  return { server, engine, warnings, listener: new RecordingGeneration() }
}
