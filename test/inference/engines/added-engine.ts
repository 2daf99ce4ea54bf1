/** An engine kind outside of `src`, by the recipe of CONTRIBUTING.md: one file. */

import type {
  EngineDescriptor,
  EngineSettings,
} from '../../../src/inference/engines/engine-descriptor.ts'
import type {
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
} from '../../../src/inference/generation/inference-engine.ts'
import { integer, section } from '../../../src/inference/schema/config-fields.ts'
import { z } from '../../../src/inference/schema/schema.ts'

interface UpperCaseConfig extends EngineSettings {
  readonly kind: 'upper-case'
  readonly maxRequests: number
}

export const upperCaseEngine: EngineDescriptor<UpperCaseConfig> = {
  kind: 'upper-case',
  model: 'name',
  nodes: 'this',
  hasServer: false,
  section: () =>
    section({
      kind: z.literal('upper-case').describe('Answers in capital letters.'),
      max_requests: integer(1, 64).default(8).describe('Requests at a time.'),
    }),
  slots: ({ maxRequests }) => maxRequests,
  create: ({ maxRequests }, { config }) => new UpperCaseEngine(config.modelPath, maxRequests),
}

class UpperCaseEngine implements InferenceEngine {
  readonly capacity: InferenceEngine['capacity']
  readonly #name: string

  constructor(name: string, slots: number) {
    this.#name = name
    this.capacity = { admits: 'batch', slots }
  }

  async start() {
    return { name: this.#name, contextLength: 1000, hasChatTemplate: true }
  }

  async generate(requests: readonly GenerationRequest[], listener: GenerationListener) {
    for (const { id, input } of requests) {
      const text = input.kind === 'text' ? input.text : (input.messages.at(-1)?.content ?? '')
      await listener.delta(id, { text: text.toUpperCase() })
      const usage = { promptTokens: 1, completionTokens: 1 }
      listener.end(id, { kind: 'done', finishReason: 'stop', usage })
    }
  }

  async tokenize(text: string) {
    return Array.from(text, (_, at) => at)
  }

  lost() {
    return new Promise<string>(() => {})
  }

  async close() {}
}
