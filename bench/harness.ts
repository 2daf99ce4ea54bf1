/** What every bench needs: the median, and a table that can be pasted into docs/performance.md. */

export function median(values: readonly number[]): number {
  const sorted = [...values].toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

/** Prints a Markdown table. */
export function table(
  heads: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |\n`
  process.stdout.write(line(heads) + line(heads.map(() => '---')) + rows.map(line).join(''))
}
