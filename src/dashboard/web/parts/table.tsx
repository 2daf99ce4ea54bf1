/** A table that scrolls horizontally on a narrow page. Numbers are aligned at the right. */

import type { ComponentChildren } from 'preact'

export interface Column<Row> {
  readonly title: string
  readonly isNumber?: boolean
  readonly cell: (row: Row) => ComponentChildren
}

interface TableProps<Row> {
  readonly caption: string
  readonly columns: readonly Column<Row>[]
  readonly rows: readonly Row[]
  readonly keyOf: (row: Row, index: number) => string
  /** The caption is only read aloud where a heading shows the same. */
  readonly isCaptionHidden?: boolean
}

export function Table<Row>({ caption, columns, rows, keyOf, isCaptionHidden }: TableProps<Row>) {
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class={isCaptionHidden === true ? 'hidden' : undefined}>{caption}</caption>
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
