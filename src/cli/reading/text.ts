/** Tables as text for a terminal. Pure. */

export interface Column<Row> {
  readonly head: string
  readonly cell: (row: Row) => string
  /** Numbers stand to the right. Default `false`. */
  readonly isNumber?: boolean
  /** Where the width is short, those with a higher number are left out first. Default 0: never. */
  readonly dispensable?: number
}

const gap = '  '

/** Lines of equal columns with their heads, none wider than `width`; the first column is cut. */
export function tableLines<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width = Infinity,
): string[] {
  const all = columns.map((column) => {
    const cells = [column.head, ...rows.map(column.cell)]
    const widest = cells.reduce((most, { length }) => Math.max(most, length), 0)
    return { column, cells, widest }
  })
  const kept = new Set(all)
  const widthOf = (): number =>
    [...kept].reduce((sum, { widest }) => sum + widest + gap.length, -gap.length)
  const byRank = all
    .filter(({ column }) => (column.dispensable ?? 0) > 0)
    .toSorted((a, b) => (b.column.dispensable ?? 0) - (a.column.dispensable ?? 0))
  for (const one of byRank) if (widthOf() > width) kept.delete(one)
  const shown = all.filter((one) => kept.has(one))
  return Array.from({ length: rows.length + 1 }, (_, row) => {
    const cells = shown.map(({ column, cells: texts, widest }) => {
      const text = texts[row] ?? ''
      return column.isNumber === true ? text.padStart(widest) : text.padEnd(widest)
    })
    return fit(cells.join(gap).trimEnd(), width)
  })
}

/** Cut to the width, with a mark where something is missing. */
export const fit = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`
