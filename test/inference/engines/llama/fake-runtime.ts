/** A fake model: its slots return given texts, and note when they are called. */

import type {
  ChosenToken,
  LlamaRuntime,
  Slot,
  Token,
  Vocabulary,
} from '../../../../src/inference/engines/llama/runtime.ts'

const end = 0

/** A token for every letter; token 0 ends an answer. */
const letters: Vocabulary = {
  size: 256,
  firstToken: null,
  maxTokenLength: 1,
  slicing: null,
  tokenize: (text) => Array.from(text, (letter) => letter.charCodeAt(0)),
  textOf: (tokens) => String.fromCharCode(...tokens),
  fullTextOf: (tokens) => String.fromCharCode(...tokens),
  nameOf: (token) => String.fromCharCode(token),
  bytesOf: () => null,
  isEnd: (token) => token === end,
  isTextless: () => false,
}

export interface FakeRuntimeOptions {
  readonly slots: number
  /** Default 0. */
  readonly longSlots?: number
  readonly batchSize?: number
  readonly contextLength?: number
  /** Default: none. */
  readonly template?: LlamaRuntime['template']
  /** The output of slot `at` after a prompt, then the end. Default: the prompt. */
  readonly say?: (prompt: string, at: number) => string | Error
}

export class FakeRuntime implements LlamaRuntime {
  readonly contextLength: number
  readonly threadWarning = null
  readonly tuningReport = null
  readonly batchSize: number
  /** The prompts that were tokenised. */
  readonly tokenized: string[] = []
  readonly vocabulary: Vocabulary = {
    ...letters,
    tokenize: (text, how) => {
      this.tokenized.push(text)
      return letters.tokenize(text, how)
    },
  }
  readonly template: LlamaRuntime['template']
  readonly slots: readonly Slot[]
  readonly longSlots: readonly Slot[]
  /** One entry for everything that a slot was asked. */
  readonly asked: string[] = []
  readonly #say: (prompt: string, at: number) => string | Error

  constructor(options: FakeRuntimeOptions) {
    const { slots, batchSize = 64, contextLength = 64, say = (prompt) => prompt } = options
    this.batchSize = batchSize
    this.contextLength = contextLength
    this.template = options.template ?? null
    this.#say = say
    this.slots = Array.from({ length: slots }, (_, at) => this.#createSlot(at))
    const longSlots = Array.from({ length: options.longSlots ?? 0 }, (_, at) => slots + at)
    this.longSlots = longSlots.map((at) => this.#createSlot(at))
  }

  createGrammar(): ReturnType<LlamaRuntime['createGrammar']> {
    throw new Error('there are no grammars')
  }

  #createSlot(at: number): Slot {
    let prompt = ''
    let held: Token[] = []
    const note = (what: string): void => void this.asked.push(`${at} ${what}`)
    const hold = (tokens: readonly Token[]): void => {
      held.push(...tokens)
      prompt = letters.textOf(held, [])
    }
    return {
      get tokens() {
        return held
      },
      truncate: async (count) => {
        note(`keep ${count}`)
        held = held.slice(0, count)
      },
      evaluate: async (tokens) => {
        note(`take ${tokens.length}`)
        hold(tokens)
      },
      score: async (tokens, followers) => {
        note(`score ${tokens.length}`)
        hold(tokens)
        return followers.map((token) => new Map([[token, -1]]))
      },
      generate: (tokens) => {
        hold(tokens)
        const answer = this.#say(prompt, at)
        let [last, isLater] = [end, false]
        const rest = answer instanceof Error ? [] : letters.tokenize(answer, anyhow)
        return {
          next: async () => {
            note('next')
            if (answer instanceof Error) throw answer
            const chosen = choose(rest.shift())
            if (isLater) hold([last])
            last = chosen.token
            isLater = true
            return chosen
          },
          close: async () => note('close'),
        }
      },
    }
  }
}

const anyhow = { special: false, inner: false }
const choose = (token: Token = end): ChosenToken => ({ token })
