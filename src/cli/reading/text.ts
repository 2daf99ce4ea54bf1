/** Formats text for a terminal of any width: tables, and wrapped or truncated lines. Pure. */

import { displayWidth, firstColumns, padColumns } from '../../foundation/text/display-width.ts'
import { cutMiddle, cutText, escapeControls, shortNames } from '../../views/readable.ts'

export interface Column<Row> {
  readonly head: string
  readonly cell: (row: Row) => string
  /** Whether to align to the right. Default `false`. */
  readonly isNumber?: boolean
  /** If space is limited, columns with a higher number are left out first. Default 0: never. */
  readonly dispensable?: number
  /** The width to which text may be truncated before a column is left out. Default: never. */
  readonly narrowest?: number
  /** Truncates text at the end; by default in the middle, because names often differ at the end. */
  readonly isCutAtEnd?: boolean
}

/** The column for names of tasks. */
export function nameColumn<Row extends { readonly name: string }>(
  rows: readonly Row[],
  more: Pick<Column<Row>, 'dispensable' | 'narrowest'>,
): Column<Row> {
  const shortOf = shortNames(rows.map(({ name }) => name))
  return { head: 'name', cell: ({ name }) => shortOf(name), ...more }
}

interface MeasuredColumn<Row> {
  readonly column: Column<Row>
  readonly cells: readonly string[]
  readonly widest: number
  readonly min: number
}

const gap = '  '
/** Longer cells are truncated even without a terminal, because they widen the whole table. */
const maxCellWidth = 200

/** Returns lines of aligned columns with headers, none wider than `width`. */
export function tableLines<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width = Infinity,
): string[] {
  const all = columns.map((column) => {
    const cut = cutOf(column)
    const texts = rows.map((row) => escapeControls(cut(column.cell(row), maxCellWidth)))
    const cells = [column.head, ...texts.map((text) => cut(text, maxCellWidth))]
    const widest = cells.reduce((max, text) => Math.max(max, displayWidth(text)), 0)
    const min = Math.min(widest, Math.max(column.narrowest ?? widest, column.head.length))
    return { column, cells, widest, min }
  })
  const shown = withWidths(keepFitting(all, width), width)
  return Array.from({ length: rows.length + 1 }, (_, row) => {
    const cells = shown.map(({ column, cells: texts, width: own }) => {
      const text = cutOf(column)(texts[row] ?? '', own)
      return padColumns(text, own, column.isNumber === true ? 'start' : 'end')
    })
    return cutText(cells.join(gap).trimEnd(), width)
  })
}

const cutOf = <Row>({ isCutAtEnd }: Column<Row>): typeof cutText =>
  isCutAtEnd === true ? cutText : cutMiddle

const sumOf = (widths: readonly number[]): number =>
  widths.reduce((sum, one) => sum + one + gap.length, -gap.length)

/** Leaves out the least important columns until the rest fits. */
function keepFitting<Row>(
  all: readonly MeasuredColumn<Row>[],
  width: number,
): readonly MeasuredColumn<Row>[] {
  const byRank = all
    .filter(({ column }) => (column.dispensable ?? 0) > 0)
    .toSorted((a, b) => (b.column.dispensable ?? 0) - (a.column.dispensable ?? 0))
  let kept = all
  for (const one of byRank) {
    if (sumOf(kept.map(({ min }) => min)) <= width) break
    kept = kept.filter((other) => other !== one)
  }
  return kept
}

/**
 * Distributes the remaining width to truncated columns, from left to right. If the required columns
 * do not fit, the first one gets less than its minimum width.
 */
function withWidths<Row>(kept: readonly MeasuredColumn<Row>[], width: number) {
  let room = width - sumOf(kept.map(({ min }) => min))
  return kept.map((one) => {
    const more = Math.max(1 - one.min, Math.min(room, one.widest - one.min))
    room -= more
    return { ...one, width: one.min + more }
  })
}

const mark = ' \\'

/**
 * Breaks a line between words, and inside a word that is too long. Continuation lines are indented;
 * in a command, lines end with a backslash instead, so that the copied text works in a shell.
 */
export function wrapLine(line: string, width: number): string[] {
  if (displayWidth(line) <= width || labelledPath.test(line) || commandPart.test(line))
    return [line]
  const at = commandIn(line)
  if (at === -1) return wrapWords(line, width)
  // If the command does not fit after the text, the text gets its own lines.
  const [first = ''] = /^(?:npx )?\S*/.exec(line.slice(at)) ?? []
  const before = displayWidth(line.slice(0, at) + first + mark)
  if (before <= width) return wrapCommand(line, width)
  return [...wrapWords(line.slice(0, at).trimEnd(), width), ...wrapCommand(line.slice(at), width)]
}

/** A labelled path, such as that of a record, is not wrapped, so that it can be copied. */
const labelledPath = /^\w+ {2,}\S*\/\S+$/

/** A line of a command that already has one line per option. */
const commandPart = / \\$|^ +-\w '.*'$/

/** The index at which a shell command begins; -1 if there is none. */
function commandIn(line: string): number {
  const label = /^ {2}command: /.exec(line)
  return label === null ? line.search(knownCommands) : label[0].length
}

/** Commands that tutti suggests to users. */
const knownCommands = /\bnpx tutti |\b(?:apt-get|npm|ubuntu-drivers) install /

function wrapWords(line: string, width: number): string[] {
  const [own = ''] = /^ */.exec(line) ?? []
  const indent = ' '.repeat(Math.min(own.length + 2, Math.floor(width / 4)))
  return breakAt(line, width, indent, () => '')
}

/** Inside a word, the backslash has no space before it. Quoted text is not wrapped. */
const wrapCommand = (line: string, width: number): string[] =>
  displayWidth(line) <= width || /['"]/.test(line)
    ? [line]
    : breakAt(line, Math.max(1, width - mark.length), '', (isInWord) =>
        isInWord ? mark.trim() : mark,
      )

function breakAt(
  line: string,
  width: number,
  indent: string,
  endOf: (isInWord: boolean) => string,
): string[] {
  const lines: string[] = []
  let rest = line
  while (displayWidth(rest) > width) {
    const fitting = firstColumns(rest, width).length
    const space = rest.lastIndexOf(' ', fitting)
    const isInWord = rest.slice(0, Math.max(0, space)).trim() === ''
    const cut = isInWord ? Math.max(indent.length + 1, fitting) : space
    lines.push(`${rest.slice(0, cut).trimEnd()}${endOf(isInWord)}`)
    rest = indent + rest.slice(cut).trimStart()
  }
  return [...lines, rest]
}
