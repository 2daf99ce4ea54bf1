/** Quotes text for shell scripts. No other code puts text into a script. */

import { ValueError } from '../foundation/errors.ts'
import { quoteArgument } from '../views/readable.ts'

/** Quotes text as one word for a POSIX shell. Throws for line breaks and NUL. */
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
  return quoteArgument(text)
}
