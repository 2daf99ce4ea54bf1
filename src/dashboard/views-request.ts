/** Checks the body of `POST views`. */

import { HttpError } from '../runtime/http/http-error.ts'
import type { VersionedQuery, ViewQuery, ViewsRequest } from './protocol.ts'

const maxWaitSeconds = 25
const maxQueries = 32
const maxText = 4096

type Field = (value: unknown) => boolean

const isNumber: Field = (value) => typeof value === 'number' && Number.isFinite(value)
const isText: Field = (value) => typeof value === 'string' && value.length <= maxText
const isCount =
  (max: number): Field =>
  (value) =>
    Number.isInteger(value) && Number(value) >= 0 && Number(value) <= max

const optional =
  (field: Field): Field =>
  (value) =>
    value === undefined || field(value)

const oneOf =
  (...texts: readonly string[]): Field =>
  (value) =>
    texts.some((text) => text === value)

const isBoolean: Field = (value) => typeof value === 'boolean'

const objectOf =
  (fields: Readonly<Record<string, Field>>): Field =>
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    Object.keys(value).every((key) => Object.hasOwn(fields, key)) &&
    Object.entries(fields).every(([key, field]) => field((value as Record<string, unknown>)[key]))

const range = { from: optional(isNumber), to: optional(isNumber) }
const filter = objectOf({ ...range, name: optional(isText), at: optional(isNumber) })
const sorts = ['order', 'uid', 'name', 'state', 'waited', 'ran', 'worker']

/** The fields of each kind of query, besides `kind`. */
const queryFields: Readonly<Record<ViewQuery['kind'], Readonly<Record<string, Field>>>> = {
  head: { filter },
  stream: { filter, range: objectOf(range), cells: isCount(4096) },
  inside: { filter },
  progress: { filter },
  tasks: {
    filter,
    q: isText,
    sort: oneOf(...sorts),
    isDescending: isBoolean,
    offset: isCount(1e9),
    limit: isCount(500),
  },
  resources: { filter, range: objectOf(range) },
  failures: { filter },
  workers: { filter },
  inference: { filter },
  graph: { filter },
  events: { filter, q: isText, limit: isCount(1000) },
  health: {},
  task: { uid: isText, filter },
  records: {},
}

/** Returns the request, or throws a 400 error that names the wrong field. */
export function toViewsRequest(body: unknown): ViewsRequest {
  const shape = { record: optional(isText), queries: Array.isArray, waitSeconds: isNumber }
  if (!objectOf(shape)(body)) throw badField('body')
  const request = body as ViewsRequest
  const { queries, waitSeconds } = request
  if (queries.length > maxQueries) throw badField('queries')
  if (waitSeconds < 0 || waitSeconds > maxWaitSeconds) throw badField('waitSeconds')
  for (const [at, one] of queries.entries()) expectQuery(one, `queries[${at}]`)
  return request
}

function expectQuery(one: VersionedQuery, path: string): void {
  const shape = { id: isText, version: optional(isText), query: () => true }
  if (!objectOf(shape)(one)) throw badField(path)
  const { kind } = Object(one.query) as ViewQuery
  if (typeof kind !== 'string' || !Object.hasOwn(queryFields, kind)) throw badField(`${path}.query`)
  if (!objectOf({ kind: isText, ...queryFields[kind] })(one.query)) throw badField(`${path}.query`)
}

const badField = (path: string): HttpError =>
  new HttpError(400, `\`${path}\` is not what the page sends.`, {
    code: 'invalid_value',
    param: path,
  })
