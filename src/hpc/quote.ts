/** The one way in which text gets into a shell script. Everything else is passed as arguments. */

import { ValueError } from '../foundation/errors.ts'
import { quoteWord } from '../views/readable.ts'

/** One word of a POSIX shell. Line ends and NUL are refused. */
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
