/** The state of the page: the conversation, the settings, and the answer that is being received. */

import { signal } from '@preact/signals'
import { nowMs, wait } from './page-clock.ts'
import {
  type AnswerPart,
  type ChatFields,
  hasKey,
  listModels,
  type Message,
  ServerError,
  setKey,
  streamAnswer,
} from './server-api.ts'

export interface Turn {
  readonly role: 'user' | 'assistant'
  /** Who wrote the text: the model, or `You`. */
  readonly author: string
  readonly text: string
  readonly reasoning: string
  /** The facts about an answer that has ended; empty before. */
  readonly facts: string
}

/**
 * The texts in the fields of the form. An empty field is not sent, so that the server's default
 * applies.
 */
export interface Settings {
  readonly model: string
  readonly system: string
  readonly temperature: string
  readonly topP: string
  readonly maxTokens: string
  readonly seed: string
}

export const turns = signal<readonly Turn[]>([])
export const models = signal<readonly string[]>([])
export const problem = signal('')
/** Whether the server has refused a request because of its key. */
export const needsKey = signal(false)
export const isAnswering = signal(false)
/** What the page waits for before a message can be sent; empty if the server is ready. */
export const waitingFor = signal('the server')
export const settings = signal<Settings>({
  model: '',
  system: '',
  temperature: '',
  topP: '',
  maxTokens: '',
  seed: '',
})

let answering = new AbortController()

export const change = (changes: Partial<Settings>): void => {
  settings.value = { ...settings.value, ...changes }
}

/** The delay before the page asks again whether the server is ready. */
const retryMs = 1000

/** Asks for the models until the server is ready or wants another key. */
export async function connect(): Promise<void> {
  for (;;) {
    try {
      models.value = await listModels()
      if (!models.value.includes(settings.value.model)) change({ model: models.value[0] ?? '' })
      waitingFor.value = ''
      return
    } catch (error) {
      if (error instanceof ServerError && error.status === 401) {
        needsKey.value = true
        waitingFor.value = ''
        if (hasKey()) problem.value = error.message
        return
      }
      waitingFor.value = error instanceof ServerError ? 'the model, which is loading' : 'the server'
    }
    await wait(retryMs)
  }
}

export async function useKey(key: string): Promise<void> {
  setKey(key.trim())
  needsKey.value = false
  problem.value = ''
  await connect()
}

export async function ask(text: string): Promise<void> {
  const question: Turn = { role: 'user', author: 'You', text, reasoning: '', facts: '' }
  turns.value = [...turns.value, question]
  await answer()
}

export async function askAgain(): Promise<void> {
  const last = turns.value.findLastIndex(({ role }) => role === 'user')
  turns.value = turns.value.slice(0, last + 1)
  await answer()
}

export const stop = (): void => answering.abort()

export function clear(): void {
  stop()
  turns.value = []
  problem.value = ''
}

/** Receives the answer to the last message. A conversation that was cleared stays empty. */
async function answer(): Promise<void> {
  const controller = new AbortController()
  answering = controller
  isAnswering.value = true
  problem.value = ''
  const question = turns.value
  const received = new ReceivedAnswer()
  const { model: author } = settings.value
  const show = (facts: readonly string[]): void => {
    if (turns.value.length === 0 || answering !== controller) return
    const { text, reasoning } = received
    const turn = { role: 'assistant', author, text, reasoning, facts: facts.join(' · ') } as const
    turns.value = [...question, turn]
  }
  show([])
  try {
    await streamAnswer(toMessages(question), toFields(), controller.signal, (part) => {
      received.add(part)
      show([])
    })
    show(received.describe())
  } catch (error) {
    const isStopped = controller.signal.aborted
    show([...received.describe(), isStopped ? 'stopped' : 'failed'])
    if (!isStopped) report(error)
  }
  if (answering === controller) isAnswering.value = false
}

function report(error: unknown): void {
  if (error instanceof ServerError && error.status === 401) needsKey.value = true
  const isNetwork = error instanceof TypeError
  problem.value = isNetwork ? 'The server cannot be reached.' : (error as Error).message
}

function toMessages(question: readonly Turn[]): Message[] {
  const { system } = settings.value
  const messages = question.map(({ role, text }): Message => ({ role, content: text }))
  return system.trim() === '' ? messages : [{ role: 'system', content: system }, ...messages]
}

function toFields(): ChatFields {
  const { model, temperature, topP, maxTokens, seed } = settings.value
  const numbers = { temperature, top_p: topP, max_tokens: maxTokens, seed }
  const given = Object.entries(numbers).filter(([, text]) => text.trim() !== '')
  return { model, ...Object.fromEntries(given.map(([name, text]) => [name, Number(text)])) }
}

/** The rate of an answer is not shown if its tokens arrived within a shorter time. */
const minRateMs = 20

/** An answer as far as it has been received, with its times. */
class ReceivedAnswer {
  readonly #sentMs = nowMs()
  #firstMs: number | null = null
  #lastMs = 0
  #tokens: number | null = null
  #finishReason: string | null = null
  text = ''
  reasoning = ''

  add({ text, reasoning, tokens, finishReason }: AnswerPart): void {
    if (text !== '' || reasoning !== '') {
      this.#lastMs = nowMs()
      this.#firstMs ??= this.#lastMs
    }
    this.text += text
    this.reasoning += reasoning
    this.#tokens = tokens ?? this.#tokens
    this.#finishReason = finishReason ?? this.#finishReason
  }

  describe(): string[] {
    const facts: string[] = []
    const [first, tokens] = [this.#firstMs, this.#tokens]
    if (tokens !== null) facts.push(`${tokens} ${tokens === 1 ? 'token' : 'tokens'}`)
    if (tokens !== null && tokens > 1 && first !== null && this.#lastMs - first > minRateMs) {
      // The measured time begins with the first token, so this token is not counted.
      const rate = (1000 * (tokens - 1)) / (this.#lastMs - first)
      facts.push(`${rate < 100 ? rate.toPrecision(3) : Math.round(rate)} tokens/s`)
    }
    if (first !== null) facts.push(`first after ${((first - this.#sentMs) / 1000).toFixed(2)} s`)
    if (this.#finishReason === 'length') facts.push('ended at the maximum number of tokens')
    return facts
  }
}
