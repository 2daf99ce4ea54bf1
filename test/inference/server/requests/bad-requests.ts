/** Requests that get 400: the rows of the file beside this one. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { hello } from '../served.ts'

export interface BadRequest {
  readonly name: string
  readonly path: string
  readonly body: unknown
  readonly code: string
  readonly param: string
  /** The whole message, where its words matter. */
  readonly message?: string
}

/** A row has the whole `body`, or `fields` that are added to a chat request without mistakes. */
type Row = BadRequest & { readonly fields?: object }

export const badRequests: readonly BadRequest[] = readFileSync(
  join(import.meta.dirname, 'bad-requests.jsonl'),
  'utf8',
)
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as Row)
  .map(({ fields, ...row }) =>
    fields === undefined ? row : { ...row, body: { ...hello, ...fields } },
  )
