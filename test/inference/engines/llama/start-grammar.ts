/** An answer at its beginning, by the text of a grammar. */

import {
  type GrammarStart,
  GrammarCache,
} from '../../../../src/inference/engines/llama/grammar/next-characters.ts'

export const startGrammar = (text: string): GrammarStart => new GrammarCache().open(text).begin()
