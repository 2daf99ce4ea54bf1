/** Computes the view that answers a query of the page. */

import { ValueError } from '../../foundation/errors.ts'
import type { RunPass } from '../../views/all-panels.ts'
import { textAt, valueAt } from '../../views/columns.ts'
import { createPastPass } from '../../views/moments/past-pass.ts'
import { collectColumns, freeColumns, type RunColumns } from '../../views/moments/run-columns.ts'
import { uidOf } from '../../views/task-index.ts'
import type { Views, ViewQuery } from '../protocol.ts'
import { showEvents } from './events.ts'
import { showFailures } from './failures.ts'
import { showGraph } from './graph.ts'
import { showHead } from './head.ts'
import { showHealth } from './health.ts'
import { showInference } from './inference.ts'
import { showProgress } from './progress.ts'
import type { QuerySource } from './query-source.ts'
import { showResources } from './nodes/resources.ts'
import { RunMoment } from './run-moment.ts'
import { RunTexts } from './sentences/run-texts.ts'
import { findShownTask, shownText } from './shown-texts.ts'
import { listInside } from './stream/inside.ts'
import { showStream } from './stream/stream.ts'
import { readTask } from './drawer/task-source.ts'
import { showTask } from './drawer/drawer.ts'
import { showTasks } from './tasks/tasks.ts'
import { showWorkers } from './nodes/workers.ts'

/**
 * The flat columns of the pass that was queried last: of the whole run, or of an earlier time. They
 * share their memory, because each takes 66 MB for a million tasks.
 */
interface SharedColumns {
  owner: RunPass | null
  events: number
  columns: RunColumns | undefined
}

/** Cached results for a pass (the state of all views). They are valid until the pass changes. */
interface PassCache {
  readonly texts: RunTexts
  readonly shared: SharedColumns
  /**
   * The run at the time that was replayed last. `pass` is `null` if it must be read from the
   * record.
   */
  past: { readonly at: number; readonly events: number; readonly pass: RunPass | null } | null
}

const caches = new WeakMap<RunPass, PassCache>()

function findCache(pass: RunPass): PassCache {
  return caches.get(pass) ?? addCache(pass, { owner: null, events: 0, columns: undefined }, true)
}

function addCache(pass: RunPass, shared: SharedColumns, mayPlan: boolean): PassCache {
  const added = { texts: new RunTexts({ mayPlan }), shared, past: null }
  caches.set(pass, added)
  return added
}

/** Changes when an answer may have changed although the pass has not. */
export const answersRevision = (pass: RunPass): number => caches.get(pass)?.texts.revision ?? 0

/** Frees what is computed again for the next query, before something else needs memory. */
export function freeAnswers(pass: RunPass): void {
  const cache = caches.get(pass)
  if (cache === undefined) return
  cache.past = null
  const { shared } = cache
  if (shared.columns !== undefined) freeColumns(shared.columns)
  Object.assign(shared, { owner: null, columns: undefined })
}

function createMoment(source: QuerySource, { shared }: PassCache): RunMoment {
  const { pass } = source
  const { events } = pass.counts
  const isCurrent = shared.owner === pass && shared.events === events
  const columns =
    isCurrent && shared.columns !== undefined
      ? shared.columns
      : collectColumns(pass, shared.columns)
  Object.assign(shared, { owner: pass, events, columns })
  return new RunMoment(source, columns)
}

/** The source as it was at an earlier time. All panels ask for the same time. */
async function findPast(source: QuerySource, at: number): Promise<QuerySource> {
  const cache = findCache(source.pass)
  const { events } = source.pass.counts
  if (cache.past?.at !== at || cache.past.events !== events) {
    freeAnswers(source.pass)
    const pass = createPastPass(source.pass, at)
    if (pass !== null) addCache(pass, cache.shared, false)
    cache.past = { at, events, pass }
  }
  const { pass } = cache.past
  if (pass === null) return await findRead(source, at)
  const known = source.events.filter(({ event_time: time }) => time <= at)
  return { ...source, pass, now: at, state: 'running', events: known }
}

/** The run until that time, read from its record. */
async function findRead(source: QuerySource, at: number): Promise<QuerySource> {
  const past = await source.at(at)
  if (!caches.has(past.pass)) addCache(past.pass, findCache(source.pass).shared, true)
  return past
}

/** Rejects if the query cannot be answered. The page shows the message. */
export async function answerQuery<Kind extends ViewQuery['kind']>(
  source: QuerySource,
  query: Extract<ViewQuery, { readonly kind: Kind }>,
): Promise<Views[Kind]> {
  const at = 'filter' in query ? query.filter.at : undefined
  const shown = at === undefined || at >= source.now ? source : await findPast(source, at)
  const cache = findCache(shown.pass)
  const moment = createMoment(shown, cache)
  return await answers[query.kind]({ moment, source: shown, whole: source, cache }, query)
}

interface AnswerContext {
  readonly moment: RunMoment
  readonly source: QuerySource
  /** The whole run, even in a replay. */
  readonly whole: QuerySource
  readonly cache: PassCache
}

type Answers = {
  readonly [Kind in ViewQuery['kind']]: (
    context: AnswerContext,
    query: Extract<ViewQuery, { readonly kind: Kind }>,
  ) => Views[Kind] | Promise<Views[Kind]>
}

const answers: Answers = {
  head: ({ moment, source, whole, cache }) =>
    showHead(moment, source, whole, cache.texts.get(moment, source.reading !== null)),
  stream: ({ moment }, query) => showStream(moment, query),
  inside: ({ moment }, { filter }) => ({ names: listInside(moment, filter) }),
  progress: ({ moment }, { filter }) => showProgress(moment, filter),
  tasks: ({ moment }, query) => showTasks(moment, query.filter, query),
  resources: ({ moment }, { range }) => showResources(moment, range),
  failures: ({ moment }, { filter }) => showFailures(moment, filter),
  workers: ({ moment, source }, { filter }) => showWorkers(moment, filter, source.files),
  inference: ({ moment, source }) => showInference(moment, source.serving),
  graph: ({ moment, source, cache }, { filter }) =>
    showGraph(moment, filter, cache.texts.get(moment, source.reading !== null).criticalPath),
  events: ({ moment, source, whole }, query) => {
    // The number of events that are older than the kept ones. `source.events` is not enough: in a
    // replay, it has only the kept events from before the replayed time.
    const olderEvents = whole.pass.counts.events - whole.events.length
    return showEvents(moment, query, source.events, source.events.length + olderEvents)
  },
  health: ({ moment, source }) => showHealth(moment, source),
  task: async (context, { uid }) => await showDrawer(context, uid),
  records: () => {
    throw new ValueError('expected a folder of records, got a run', { field: 'kind' })
  },
}

async function showDrawer(
  { moment, source, cache }: AnswerContext,
  shown: string,
): Promise<Views['task']> {
  const task = findShownTask(moment, shown)
  if (task !== -1) {
    const { pass, names } = moment
    const uid = uidOf(pass.counts.index, task)
    const name = textAt(names.names, valueAt(names.nameOfTask, task))
    const found = await readTask(source, uid, name)
    // The pass may have changed while the record was read.
    const view = showTask(createMoment(source, cache), task, found)
    if (view !== null) return view
  }
  throw new ValueError(`there is no task "${shownText(shown)}"`, { code: 'TaskNotFoundError' })
}
