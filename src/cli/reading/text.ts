/** Numbers, times and tables as text for a terminal. Pure. */

/** `1.2 ms`, `3.4 s`, `2 m 05 s`, `1 h 02 m`; `-` for none. */
export function secondsText(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) return '-'
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 2 : 0)} ms`
  if (seconds < 99.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`
  const whole = Math.round(seconds)
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)]
  const two = (value: number): string => String(value).padStart(2, '0')
  return hours > 0 ? `${hours} h ${two(minutes)} m` : `${minutes} m ${two(whole % 60)} s`
}

/** The local time of day with milliseconds; the date before it where it is not that of `today`. */
export function timeText(seconds: number | null, today?: number): string {
  if (seconds === null || !Number.isFinite(seconds)) return '-'
  const [date, time] = localTime(seconds)
  const isSameDay = today !== undefined && localTime(today)[0] === date
  return isSameDay ? time : `${date} ${time}`
}

function localTime(seconds: number): readonly [date: string, time: string] {
  const at = new Date(seconds * 1000)
  if (Number.isNaN(at.getTime())) return ['', String(seconds)]
  const two = (value: number): string => String(value).padStart(2, '0')
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  const milliseconds = String(at.getMilliseconds()).padStart(3, '0')
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')
  return [date, `${time}.${milliseconds}`]
}

export const countText = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : many}`

/** The first line of a message, not longer than `most`. */
export function firstLine(text: string, most = 100): string {
  const [line = ''] = text.split('\n', 1)
  return line.length > most ? `${line.slice(0, most - 1)}…` : line
}

/** The last part of a path. */
export const shortName = (name: string): string => name.split('/').at(-1) || name || '(no name)'

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
