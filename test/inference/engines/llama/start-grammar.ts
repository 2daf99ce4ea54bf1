/** An answer at its beginning, by the text of a grammar. */

import { parseGrammar } from '../../../../src/inference/engines/llama/grammar/gbnf.ts'
import { NextCharacters } from '../../../../src/inference/engines/llama/grammar/next-characters.ts'

export const startGrammar = (text: string): NextCharacters =>
  NextCharacters.start(parseGrammar(text))
