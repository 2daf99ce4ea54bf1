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
  /** The latest answer, perhaps to the query before this one; `null` before the first answer. */
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
/** A request that computes new views is not canceled before this, so that views appear. */
const patienceMs = 1000

interface Entry {
  query: ViewQuery
  /** The query as text, to notice changes. */
  text: string
  version: string | null
  readonly state: Signal<ViewState<unknown>>
}

const entries = new Map<string, Entry>()
let serverId: string | null = null
let request: { readonly controller: AbortController; hasNew: boolean; sentMs: number } | null = null
let wakeUp: () => void = () => undefined

const emptyState: ViewState<unknown> = { view: null, error: '', isStale: true }

/** The state of a view that is on screen. It survives while the panel is off screen. */
export function stateOf(id: string): Signal<ViewState<unknown>> {
  return kept.get(id) ?? keep(id)
}

const kept = new Map<string, Signal<ViewState<unknown>>>()

function keep(id: string): Signal<ViewState<unknown>> {
  const state = signal(emptyState)
  kept.set(id, state)
  return state
}

/** Asks for a view from now on, or changes what is asked. */
export function ask(id: string, query: ViewQuery): void {
  const text = JSON.stringify(query)
  const entry = entries.get(id)
  if (entry?.text === text) return
  const state = stateOf(id)
  state.value = { ...state.peek(), isStale: true }
  entries.set(id, { query, text, version: null, state })
  sendSoon()
}

/** Stops asking for a view that is no longer on screen. */
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
    const isComputing = request?.hasNew === true && nowMs() - request.sentMs < patienceMs
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
    for (const state of kept.values()) state.value = emptyState
    sendSoon()
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
  const sent = new Map(entries)
  const queries = Array.from(sent, ([id, { query, version }]): VersionedQuery => {
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

function receive(
  { server, answers, rights: allowed }: ViewsResponse,
  sent: ReadonlyMap<string, Entry>,
): void {
  if (serverId !== null && serverId !== server) forgetVersions()
  serverId = server
  rights.value = allowed
  for (const answer of answers) receiveOne(answer, sent.get(answer.id))
}

function forgetVersions(): void {
  for (const entry of entries.values()) entry.version = null
}

function receiveOne(
  { id, version, view, error = '' }: QueryAnswer,
  asked: Entry | undefined,
): void {
  const entry = entries.get(id)
  if (entry === undefined || asked === undefined) return
  // The answer to an earlier query of this panel is shown until the right one arrives.
  const isStale = entry !== asked
  if (!isStale) entry.version = version
  entry.state.value = { view, error, isStale }
}
