/** A text generator that plays a script and records its requests. */

import type {
  GenerationResult,
  ProgressListener,
  TextGenerator,
  GeneratorStatus,
  PromptRequest,
} from '../../../src/inference/generation/text-generator.ts'

import type { PromptTokens } from '../../../src/inference/generation/inference-engine.ts'
import type { PassThroughInput } from '../../../src/inference/generation/pass-through.ts'

/** Handles one request; missing fields of the result have defaults. */
export type Script = (
  request: PromptRequest,
  tell: ProgressListener,
) => Promise<Partial<GenerationResult>> | Partial<GenerationResult>

export class FakeGenerator implements TextGenerator {
  readonly requests: PromptRequest[] = []
  readonly tokenized: string[] = []
  state: GeneratorStatus = { queued: 0, running: 0, workers: 1, unreadyReason: null }
  script: Script

  constructor(script: Script = echo) {
    this.script = script
  }

  async generate(
    request: PromptRequest,
    listener: ProgressListener = {},
  ): Promise<GenerationResult> {
    this.requests.push(request)
    const result = { ...emptyResult, ...(await this.script(request, listener)) }
    request.onUsed?.({ ...result.usage, text: result.text })
    return result
  }

  async tokenize(text: string): Promise<readonly number[]> {
    this.tokenized.push(text)
    return Array.from(text, (character) => character.codePointAt(0) ?? 0)
  }

  async detokenize(tokens: readonly number[]): Promise<string> {
    return String.fromCodePoint(...tokens)
  }

  async readPrompt(input: PassThroughInput): Promise<PromptTokens> {
    const messages =
      input.kind === 'chat' ? input.messages : [{ role: 'text', content: input.text }]
    const text = messages.map(({ role, content }) => `<${role}>${content}`).join('')
    return { text, tokens: await this.tokenize(text) }
  }

  status(): GeneratorStatus {
    return this.state
  }
}

const emptyResult: GenerationResult = {
  text: '',
  finishReason: 'stop',
  usage: { promptTokens: 3, completionTokens: 2 },
  toolCalls: [],
  logprobs: [],
}

/** Repeats the last message, one word per delta. */
const echo: Script = async (request, tell) => {
  const { input } = request
  const text = input.kind === 'text' ? input.text : (input.messages.at(-1)?.content ?? '')
  for (const word of text.split(/(?<= )/)) await tell.delta?.({ text: word })
  return { text }
}

/** Never resolves; rejects with the reason of the signal when it is aborted. */
export const silent: Script = ({ signal }) =>
  new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason)
    else signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
