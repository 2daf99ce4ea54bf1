/** Answers of the dashboard about runs whose events are given. */

import { answerQuery } from '../../../src/dashboard/queries/queries.ts'
import type { QuerySource } from '../../../src/dashboard/queries/query-source.ts'
import type { Filter, Views, ViewQuery } from '../../../src/dashboard/protocol.ts'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { passOver } from '../../views/synthetic-run.ts'

/** A source over the events. The run is over unless `more` says otherwise. */
export function sourceOf(
  events: readonly ViewEvent[],
  more: Partial<QuerySource> = {},
): QuerySource {
  const pass = passOver(events)
  const source: QuerySource = {
    pass,
    sessionId: 's-1',
    state: pass.states.run.endTime === null ? 'interrupted' : 'ended',
    now: pass.states.run.lastTime,
    files: [],
    metrics: null,
    telemetry: null,
    serving: null,
    events,
    reading: null,
    beginsAt: null,
    missing: [],
    readTask: () => Promise.resolve(null),
    at: () => Promise.reject(new Error('no replay in this test')),
    ...more,
  }
  return source
}

type Kind = ViewQuery['kind']
type QueryFields<K extends Kind> = Omit<Extract<ViewQuery, { readonly kind: K }>, 'kind' | 'filter'>

/** Asks a query without a filter unless one is given. */
export async function ask<K extends Kind>(
  source: QuerySource,
  kind: K,
  fields: QueryFields<K> & { readonly filter?: Filter },
): Promise<Views[K]> {
  const query = { filter: {}, ...fields, kind } as unknown as Extract<
    ViewQuery,
    { readonly kind: K }
  >
  return await answerQuery<K>(source, query)
}

export const allTasks = {
  q: '',
  sort: 'order',
  isDescending: false,
  offset: 0,
  limit: 500,
} as const
