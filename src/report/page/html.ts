/** Building blocks of HTML. All text from a record passes through `escape`. Pure. */

import { escapeControls, numberText } from '../../views/readable.ts'

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Escapes text for HTML. Line breaks and tabs are kept. */
export function escape(text: string): string {
  const shown = escapeControls(text, '\n\t')
  return shown.replace(/[&<>"']/g, (character) => entities[character] ?? character)
}

/** Escapes text for HTML and converts text between backticks to code. */
export const withCode = (text: string): string =>
  escape(text).replaceAll(/`([^`\n]+)`/g, '<code>$1</code>')

/** Encodes a value as JSON that can be embedded in a script element. */
export const embedJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll('<', '\\u003c').replaceAll('\u2028', '\\u2028')

export interface Cell {
  readonly html: string
  readonly isNumber?: boolean
}

export const text = (value: string): Cell => ({ html: escape(value) })
export const number = (value: string | number): Cell => ({
  html: escape(typeof value === 'number' ? numberText(value) : value),
  isNumber: true,
})

/** Creates a table that scrolls horizontally on a narrow page. Its caption does not scroll. */
export function table(
  caption: string,
  headers: readonly string[],
  rows: readonly (readonly Cell[])[],
): string {
  const isNumber = (at: number): boolean => rows[0]?.[at]?.isNumber === true
  const head = headers.map(
    (one, at) => `<th scope="col"${isNumber(at) ? ' class="n"' : ''}>${escape(one)}</th>`,
  )
  const body = rows.map(
    (cells) =>
      `<tr>${cells
        .map((cell) => `<td${cell.isNumber === true ? ' class="n"' : ''}>${cell.html}</td>`)
        .join('')}</tr>`,
  )
  return (
    `<p class="caption">${escape(caption)}</p>` +
    `<div class="scroll" tabindex="0" role="region" aria-label="${escape(caption)}">` +
    `<table aria-label="${escape(caption)}"><thead><tr>${head.join('')}</tr></thead>` +
    `<tbody>${body.join('')}</tbody></table></div>`
  )
}

/** Creates a section of the page, or an empty text if there is no content. */
export const section = (id: string, title: string, content: string): string =>
  content === ''
    ? ''
    : `<section aria-labelledby="${id}"><h2 id="${id}">${escape(title)}</h2>${content}</section>`

export const paragraph = (content: string): string => `<p>${withCode(content)}</p>`

export const rounded = (value: number, digits = 2): string => String(+value.toFixed(digits))
