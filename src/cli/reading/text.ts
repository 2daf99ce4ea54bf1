/** Formats tables and wraps lines for a terminal of any width. */

import { displayWidth, firstColumns, padColumns } from '../../foundation/text/display-width.ts'
import { cutMiddle, cutText, escapeControls, shortNames } from '../../views/readable.ts'

export interface Column<Row> {
  readonly head: string
  readonly cell: (row: Row) => string
  /** Whether to align to the right. Default `false`. */
  readonly isNumber?: boolean
  /** On a narrow terminal, columns with a high number are left out first. Default 0: never. */
  readonly dropOrder?: number
  /** The minimum width of truncated text. Default: text is not truncated. */
  readonly minWidth?: number
  readonly isTruncatedAtEnd?: boolean
}

export function nameColumn<Row extends { readonly name: string }>(
  rows: readonly Row[],
  more: Pick<Column<Row>, 'dropOrder' | 'minWidth'>,
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
/** Cells that are wider than this are truncated even without a terminal. */
const maxCellWidth = 200

/** Returns aligned columns with headers. No line is wider than `width`. */
export function tableLines<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width = Infinity,
): string[] {
  const all = columns.map((column) => {
    const cut = truncatorOf(column)
    const texts = rows.map((row) => escapeControls(cut(column.cell(row), maxCellWidth)))
    const cells = [column.head, ...texts.map((text) => cut(text, maxCellWidth))]
    const widest = cells.reduce((max, text) => Math.max(max, displayWidth(text)), 0)
    const min = Math.min(widest, Math.max(column.minWidth ?? widest, column.head.length))
    return { column, cells, widest, min }
  })
  const shown = assignWidths(dropColumns(all, width), width)
  return Array.from({ length: rows.length + 1 }, (_, row) => {
    const cells = shown.map(({ column, cells: texts, width: own }) => {
      const text = truncatorOf(column)(texts[row] ?? '', own)
      return padColumns(text, own, column.isNumber === true ? 'start' : 'end')
    })
    return cutText(cells.join(gap).trimEnd(), width)
  })
}

const truncatorOf = <Row>({ isTruncatedAtEnd }: Column<Row>): typeof cutText =>
  isTruncatedAtEnd === true ? cutText : cutMiddle

const totalWidth = (widths: readonly number[]): number =>
  widths.reduce((sum, one) => sum + one + gap.length, -gap.length)

function dropColumns<Row>(
  all: readonly MeasuredColumn<Row>[],
  width: number,
): readonly MeasuredColumn<Row>[] {
  const byRank = all
    .filter(({ column }) => (column.dropOrder ?? 0) > 0)
    .toSorted((a, b) => (b.column.dropOrder ?? 0) - (a.column.dropOrder ?? 0))
  let kept = all
  for (const one of byRank) {
    if (totalWidth(kept.map(({ min }) => min)) <= width) break
    kept = kept.filter((other) => other !== one)
  }
  return kept
}

/**
 * Gives the remaining width to truncated columns, from left to right. If the required columns do
 * not fit, the first one gets less than its minimum width.
 */
function assignWidths<Row>(kept: readonly MeasuredColumn<Row>[], width: number) {
  let room = width - totalWidth(kept.map(({ min }) => min))
  return kept.map((one) => {
    const more = Math.max(1 - one.min, Math.min(room, one.widest - one.min))
    room -= more
    return { ...one, width: one.min + more }
  })
}

const continuationMark = ' \\'

/**
 * Breaks a line between words or inside a word that is too long, and indents the continuation. A
 * command is continued with a backslash instead, so that a user can copy it.
 */
export function wrapLine(line: string, width: number): string[] {
  if (displayWidth(line) <= width || labelledPath.test(line) || wrappedCommand.test(line))
    return [line]
  const at = findCommand(line)
  if (at === -1) return wrapWords(line, width)
  // If the command does not fit after the text, it starts on a new line.
  const [first = ''] = /^(?:npx )?\S*/.exec(line.slice(at)) ?? []
  const before = displayWidth(line.slice(0, at) + first + continuationMark)
  if (before <= width) return wrapCommand(line, width)
  return [...wrapWords(line.slice(0, at).trimEnd(), width), ...wrapCommand(line.slice(at), width)]
}

/** Matches a path after a label. Such a path is not wrapped, so that a user can copy it. */
const labelledPath = /^\w+ {2,}\S*\/\S+$/

const wrappedCommand = / \\$|^ +-\w '.*'$/

function findCommand(line: string): number {
  const label = /^ {2}command: /.exec(line)
  return label === null ? line.search(knownCommands) : label[0].length
}

const knownCommands = /\bnpx tutti |\b(?:apt-get|npm|ubuntu-drivers) install /

function wrapWords(line: string, width: number): string[] {
  const [own = ''] = /^ */.exec(line) ?? []
  const indent = ' '.repeat(Math.min(own.length + 2, Math.floor(width / 4)))
  return breakLine(line, width, indent, () => '')
}

/**
 * Wraps a command so that a shell still reads it as one line: each line but the last ends with a
 * backslash. Between words, the backslash follows a space; inside a long word, it does not. A line
 * with quoted text is not wrapped.
 */
const wrapCommand = (line: string, width: number): string[] =>
  displayWidth(line) <= width || /['"]/.test(line)
    ? [line]
    : breakLine(line, Math.max(1, width - continuationMark.length), '', (isInWord) =>
        isInWord ? continuationMark.trim() : continuationMark,
      )

function breakLine(
  line: string,
  width: number,
  indent: string,
  endOf: (isInWord: boolean) => string,
): string[] {
  const lines: string[] = []
  let rest = line
  while (displayWidth(rest) > width) {
    const fittingLength = firstColumns(rest, width).length
    const space = rest.lastIndexOf(' ', fittingLength)
    const isInWord = rest.slice(0, Math.max(0, space)).trim() === ''
    const cut = isInWord ? Math.max(indent.length + 1, fittingLength) : space
    lines.push(`${rest.slice(0, cut).trimEnd()}${endOf(isInWord)}`)
    rest = indent + rest.slice(cut).trimStart()
  }
  return [...lines, rest]
}
