/** Lines of output or of an error, as text only. */

import { escapeControls } from '../../../views/readable.ts'

/** A viewer reads the end of long output, and the beginning of an error. */
const maxCharacters = 20_000

interface CodeProps {
  readonly lines: readonly string[]
  readonly label: string
}

export function Code({ lines, label }: CodeProps) {
  if (lines.length === 0) return null
  const text = lines.join('\n').slice(0, maxCharacters)
  return (
    <pre tabIndex={0} role="region" aria-label={label}>
      {escapeControls(text, '\n\t')}
    </pre>
  )
}
