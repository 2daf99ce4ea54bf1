/** A desk that answers from a script, and remembers what it was asked. */

import type {
  Answer,
  AnswerListener,
  Desk,
  DeskStatus,
  Question,
} from '../../../src/inference/generation/text-generator.ts'

/** Plays one question; what it leaves out of the answer is filled in. */
export type Script = (
  question: Question,
  tell: AnswerListener,
) => Promise<Partial<Answer>> | Partial<Answer>

export class FakeDesk implements Desk {
  readonly questions: Question[] = []
  readonly tokenized: string[] = []
  state: DeskStatus = { queued: 0, running: 0, workers: 1, unready: null }
  script: Script

  constructor(script: Script = echo) {
    this.script = script
  }

  async ask(question: Question, listener: AnswerListener = {}): Promise<Answer> {
    this.questions.push(question)
    return { ...emptyAnswer, ...(await this.script(question, listener)) }
  }

  async tokenize(text: string): Promise<readonly number[]> {
    this.tokenized.push(text)
    return Array.from(text, (character) => character.codePointAt(0) ?? 0)
  }

  status(): DeskStatus {
    return this.state
  }
}

const emptyAnswer: Answer = {
  text: '',
  finishReason: 'stop',
  usage: { promptTokens: 3, completionTokens: 2 },
  toolCalls: [],
  logprobs: [],
}

/** Says the last thing that was said to it, a word at a time. */
const echo: Script = async (question, tell) => {
  const { input } = question
  const text = input.kind === 'text' ? input.text : (input.messages.at(-1)?.content ?? '')
  for (const word of text.split(/(?<= )/)) await tell.delta?.({ text: word })
  return { text }
}

/** Never answers; rejects with the signal's reason once it is aborted. */
export const silent: Script = ({ signal }) =>
  new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason)
    else signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
