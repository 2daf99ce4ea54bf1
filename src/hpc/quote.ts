/** The only way in which text is put into a shell script; elsewhere it is passed as arguments. */

import { ValueError } from '../foundation/errors.ts'
import { quoteWord } from '../views/readable.ts'

/** Quotes text as one word for a POSIX shell. Throws for line ends and NUL. */
export function quoteForShell(field: string, text: string): string {
  const bad = /[\0\n\r]/.exec(text)
  if (bad !== null) {
    const what = bad[0] === '\0' ? 'a NUL byte' : 'a line end'
    throw new ValueError(`${field}: ${JSON.stringify(text)} contains ${what}`, {
      field,
      expected: 'one line of text',
      got: text,
    })
  }
  return quoteWord(text)
}
