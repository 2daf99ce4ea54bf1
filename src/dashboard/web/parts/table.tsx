/** A table that scrolls horizontally on a narrow page. Numbers are aligned at the right. */

import type { ComponentChildren } from 'preact'
import { numberText, secondsText } from '../../../views/readable.ts'
import { safeText } from '../state/names.ts'

const maxIdLength = 60

export interface Column<Row> {
  readonly title: string
  readonly isNumber?: boolean
  readonly cell: (row: Row) => ComponentChildren
}

export const numberColumn = <Row,>(title: string, cell: Column<Row>['cell']): Column<Row> => {
  return { title, isNumber: true, cell }
}

const orDash = (value: number | null): string => (value === null ? '-' : numberText(value))

/** A column of counts, with pale zeros. */
export const countColumn = <Row,>(title: string, of: (row: Row) => number | null): Column<Row> =>
  numberColumn(title, (row) => (
    <span class={of(row) === 0 ? 'muted' : undefined}>{orDash(of(row))}</span>
  ))

/** A column of short ids, which are not broken into lines. */
export const idColumn = <Row,>(title: string, of: (row: Row) => string): Column<Row> => ({
  title,
  cell: (row) => <span class="id">{safeText(of(row), maxIdLength)}</span>,
})

export const secondsColumn = <Row,>(title: string, of: (row: Row) => number | null): Column<Row> =>
  numberColumn(title, (row) => secondsText(of(row)))

interface TableProps<Row> {
  readonly caption: string
  readonly columns: readonly Column<Row>[]
  readonly rows: readonly Row[]
  readonly keyOf: (row: Row, index: number) => string
  /** Default `false`: only screen readers read the caption, because a heading shows the same. */
  readonly isCaptionShown?: boolean
}

export function Table<Row>({ caption, columns, rows, keyOf, isCaptionShown }: TableProps<Row>) {
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class={isCaptionShown === true ? undefined : 'hidden'}>{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ title, isNumber }) => (
              <th key={title} scope="col" class={isNumber === true ? 'n' : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)}>
              {columns.map(({ title, isNumber, cell }) => (
                <td key={title} class={isNumber === true ? 'n' : undefined}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
