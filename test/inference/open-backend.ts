/** Opens inference backends with a temporary configuration; closed after the test. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import {
  InferenceBackend,
  type InferenceBackendOptions,
} from '../../src/inference/inference-backend.ts'
import type {
  CreateEngine,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
} from '../../src/inference/generation/inference-engine.ts'

export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-inference-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** A configuration file with a model name, the echo engine and the given sections. */
export function configWith(sections = '', folder = tempFolder()): string {
  const file = join(folder, 'model.yaml')
  writeFileSync(file, `required:\n  model_name: tiny\n${sections}engine:\n  kind: echo\n`)
  return file
}

/** Without a server unless `port` is given. */
export async function openBackend(
  options: Partial<InferenceBackendOptions> = {},
): Promise<InferenceBackend> {
  const backend = await InferenceBackend.create({
    name: 'llm',
    configFile: configWith(),
    modelName: 'tiny',
    useService: options.port !== undefined,
    ...options,
  })
  onTestFinished(() => backend.close())
  return backend
}

/** The last message of the user. */
function promptOf({ input }: GenerationRequest): string {
  if (input.kind === 'text') return input.text
  return input.messages.findLast(({ role }) => role === 'user')?.content ?? ''
}

/** Obeys the prompt: `fail …` fails, `endless` never ends, anything else is echoed. */
export const createObedientEngine: CreateEngine = () => new ObedientEngine()

class ObedientEngine implements InferenceEngine {
  readonly capacity = { admits: 'step', slots: 1000 } as const

  async start() {
    return { name: 'tiny', contextLength: 1000, hasChatTemplate: true }
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    await Promise.all(requests.map((request) => this.#answer(request, listener)))
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return [...Buffer.from(text)]
  }

  lost(): Promise<string> {
    return new Promise(() => {})
  }

  async close(): Promise<void> {}

  async #answer(request: GenerationRequest, listener: GenerationListener): Promise<void> {
    const { id, signal } = request
    const prompt = promptOf(request)
    if (prompt === 'endless' && !signal.aborted) {
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
    }
    if (signal.aborted) return listener.end(id, { kind: 'canceled' })
    if (prompt.startsWith('fail')) {
      return listener.end(id, { kind: 'failed', error: new RangeError(prompt) })
    }
    void listener.delta(id, { text: `re: ${prompt}` })
    const usage = { promptTokens: 2, completionTokens: 3 }
    listener.end(id, { kind: 'done', finishReason: 'stop', usage })
  }
}
