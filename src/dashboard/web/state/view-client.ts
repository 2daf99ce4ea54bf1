/**
 * The connection to the server: one request at a time, with the queries of everything that is on
 * screen. The server answers when a view has changed.
 */

import { computed, effect, signal, type Signal } from '@preact/signals'
import type {
  QueryAnswer,
  ViewerRights,
  VersionedQuery,
  ViewQuery,
  ViewsRequest,
  ViewsResponse,
} from '../../protocol.ts'
import { pageState } from './fragment.ts'
import { nowMs, wait } from './page-clock.ts'

/** Denied: the server does not accept the cookie of this browser, so a new link is needed. */
export type Connection = 'connecting' | 'connected' | 'lost' | 'denied'

export interface ViewState<View> {
  /** The latest answer, which may answer the previous query; `null` before the first answer. */
  readonly view: View | null
  readonly error: string
  /** Whether the view answers an earlier query. */
  readonly isStale: boolean
}

export const connection = signal<Connection>('connecting')
export const isPaused = signal(false)
export const rights = signal<ViewerRights>({ cancel: false, retry: false, report: false })
const record = computed(() => pageState.value.record)
const isHidden = signal(document.hidden)

const waitSeconds = 25
const firstRetryMs = 250
const maxRetryMs = 4000
/** The minimum duration of a request for new views before it may be canceled. */
const minRequestMs = 1000

interface Entry {
  query: ViewQuery
  version: string | null
  readonly state: Signal<ViewState<unknown>>
}

/** The views that are on screen. A view that comes back has a new entry. */
const entries = new Map<string, Entry>()
let serverId: string | null = null
let request: { readonly controller: AbortController; hasNew: boolean; sentMs: number } | null = null
let wakeUp: () => void = () => undefined

const emptyState: ViewState<unknown> = { view: null, error: '', isStale: true }

interface Kept {
  readonly state: Signal<ViewState<unknown>>
  /** The latest query as text. */
  text: string
}

/** All views that were on screen. */
const kept = new Map<string, Kept>()

function keep(id: string): Kept {
  const one = kept.get(id) ?? { state: signal(emptyState), text: '' }
  kept.set(id, one)
  return one
}

/** The state of a view. It survives while the panel is off screen. */
export const stateOf = (id: string): Signal<ViewState<unknown>> => keep(id).state

/** Requests a view from now on, or changes the query of a requested view. */
export function ask(id: string, query: ViewQuery): void {
  const text = JSON.stringify(query)
  const [one, entry] = [keep(id), entries.get(id)]
  const isSame = one.text === text
  if (entry !== undefined && isSame) return
  // A panel that opens with another query does not begin with the answer to its earlier query.
  const before = entry !== undefined || isSame ? one.state.peek() : emptyState
  one.state.value = { ...before, isStale: true }
  one.text = text
  if (entry === undefined) entries.set(id, { query, version: null, state: one.state })
  else Object.assign(entry, { query, version: null })
  sendSoon()
}

export function stopAsking(id: string): void {
  entries.delete(id)
}

/** Asks again after the connection was denied or lost. */
export function reconnect(): void {
  connection.value = 'connecting'
  wakeUp()
}

let isSending = false

/** Changes of one turn of the event loop go out in one request. */
function sendSoon(): void {
  if (isSending) return
  isSending = true
  queueMicrotask(() => {
    isSending = false
    wakeUp()
    const isComputing = request?.hasNew === true && nowMs() - request.sentMs < minRequestMs
    if (!isComputing) request?.controller.abort()
  })
}

const isIdle = (): boolean =>
  isPaused.value || isHidden.value || connection.value === 'denied' || entries.size === 0

/** Runs for as long as the page is open. */
export async function follow(): Promise<never> {
  document.addEventListener('visibilitychange', () => (isHidden.value = document.hidden))
  effect(() => {
    if (isPaused.value || isHidden.value) request?.controller.abort()
    else wakeUp()
  })
  record.subscribe(() => {
    forgetVersions()
    for (const { state } of kept.values()) state.value = emptyState
    // Cancels the request, because its answers are about the previous record.
    request?.controller.abort()
    wakeUp()
  })
  let retryMs = firstRetryMs
  for (;;) {
    if (isIdle()) {
      await new Promise<void>((resolve) => (wakeUp = resolve))
      continue
    }
    const outcome = await exchange()
    if (outcome === 'lost') {
      const retry = new AbortController()
      wakeUp = () => retry.abort()
      await wait(retryMs, retry.signal)
    }
    retryMs = outcome === 'lost' ? Math.min(2 * retryMs, maxRetryMs) : firstRetryMs
  }
}

async function exchange(): Promise<'answered' | 'canceled' | 'lost'> {
  const controller = new AbortController()
  const sent = new Map(Array.from(entries, ([id, entry]) => [id, { entry, query: entry.query }]))
  const queries = Array.from(entries, ([id, { query, version }]): VersionedQuery => {
    return version === null ? { id, query } : { id, query, version }
  })
  const hasNew = queries.some(({ version }) => version === undefined)
  request = { controller, hasNew, sentMs: nowMs() }
  const file = record.peek()
  const body: ViewsRequest = { ...(file === null ? {} : { record: file }), queries, waitSeconds }
  try {
    const response = await fetch('views', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: controller.signal,
    })
    if (response.status === 401 || response.status === 403) {
      connection.value = 'denied'
      return 'answered'
    }
    if (!response.ok) throw new Error(`HTTP ${response.status}`)
    receive((await response.json()) as ViewsResponse, sent)
    connection.value = 'connected'
    return 'answered'
  } catch {
    if (controller.signal.aborted) return 'canceled'
    connection.value = 'lost'
    return 'lost'
  } finally {
    request = null
  }
}

interface Sent {
  readonly entry: Entry
  readonly query: ViewQuery
}

function receive(
  { server, answers, rights: allowed }: ViewsResponse,
  sent: ReadonlyMap<string, Sent>,
): void {
  if (serverId !== null && serverId !== server) forgetVersions()
  serverId = server
  rights.value = allowed
  for (const answer of answers) receiveOne(answer, sent.get(answer.id))
}

function forgetVersions(): void {
  for (const entry of entries.values()) entry.version = null
}

function receiveOne({ id, version, view, error = '' }: QueryAnswer, asked: Sent | undefined): void {
  const entry = entries.get(id)
  if (entry === undefined || entry !== asked?.entry) return
  // The answer to an earlier query of this panel is shown until the right one arrives.
  const isStale = entry.query !== asked.query
  if (!isStale) entry.version = version
  entry.state.value = { view, error, isStale }
}
