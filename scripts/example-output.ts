/** Compares the output of an example with the expected output in its last comment. */

/** The lines after `// Output:` at the end of an example, or `undefined` when there are none. */
export function expectedOutput(source: string): readonly string[] | undefined {
  const lines = source.trimEnd().split('\n')
  const start = lines.lastIndexOf('// Output:')
  const block = lines.slice(start + 1)
  if (start < 0 || block.length === 0) return undefined
  if (!block.every((line) => line === '//' || line.startsWith('// '))) return undefined
  return block.map((line) => line.slice(3))
}

/**
 * Describes the first line that differs; `undefined` if all are equal. In an expected line,
 * `<number>` matches any number and any other `<word>` matches any text that is not empty.
 */
export function firstDifference(expected: readonly string[], output: string): string | undefined {
  const actual = output.replace(/\n$/, '').split('\n')
  for (let at = 0; at < Math.max(expected.length, actual.length); at++) {
    const [wanted, got] = [expected[at], actual[at]]
    if (wanted !== undefined && got !== undefined && toPattern(wanted).test(got)) continue
    return `line ${at + 1}: expected ${quote(wanted)}, got ${quote(got)}`
  }
  return undefined
}

function toPattern(line: string): RegExp {
  const source = line
    .split(/(<[a-z][a-z -]*>)/)
    .map((part, at) => {
      if (at % 2 === 0) return part.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)
      return part === '<number>' ? String.raw`-?\d+(?:\.\d+)?(?:e[+-]?\d+)?` : '.+'
    })
    .join('')
  return new RegExp(`^${source}$`, 'u')
}

const quote = (line: string | undefined): string =>
  line === undefined ? 'the end' : JSON.stringify(line)
