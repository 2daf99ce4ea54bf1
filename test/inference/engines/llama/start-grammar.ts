/** An answer at its beginning, by the text of a grammar. */

import { parseGrammar } from '../../../../src/inference/engines/llama/grammar/gbnf.ts'
import {
  type AnswerStart,
  FollowedGrammars,
} from '../../../../src/inference/engines/llama/grammar/next-characters.ts'

export const startGrammar = (text: string): AnswerStart =>
  new FollowedGrammars().begin(parseGrammar(text))
