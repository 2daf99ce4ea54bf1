/** An answer at its beginning, by the text of a grammar. */

import {
  type AnswerStart,
  GrammarCache,
} from '../../../../src/inference/engines/llama/grammar/next-characters.ts'

export const startGrammar = (text: string): AnswerStart => new GrammarCache().open(text).begin()
