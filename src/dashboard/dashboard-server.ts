/** The HTTP server of a dashboard: its routes, and who may use them. */

import events from 'node:events'
import type { Clock } from '../foundation/clock.ts'
import { BackendError, messageOf, TuttiError } from '../foundation/errors.ts'
import { newUuid } from '../foundation/ids.ts'
import type { Log } from '../foundation/log.ts'
import { type ErrorReplies, HttpError } from '../runtime/http/http-error.ts'
import type { HttpExchange } from '../runtime/http/http-exchange.ts'
import {
  defaultHttpLimits,
  HttpServer,
  notFoundError,
  type Route,
} from '../runtime/http/http-server.ts'
import { Access, type Viewer } from './access.ts'
import { type PageFile, startPage } from './page-files.ts'
import type { ControlResult, NewLink, ViewerRights } from './protocol.ts'
import { toViewsRequest } from './views-request.ts'
import { ViewPolls } from './view-polls.ts'
import type { ViewSource, ViewSources } from './sources/view-source.ts'

/** Actions of the page on the run. The page has no button for a missing method. */
export interface DashboardControl {
  /** Cancels a task. */
  cancel?(uid: string): unknown
  /** Runs a failed task again. */
  retry?(uid: string): unknown
}

export interface DashboardServerOptions {
  readonly sources: ViewSources
  readonly files: ReadonlyMap<string, PageFile>
  readonly control: DashboardControl | null
  readonly host: string
  readonly port: number
  readonly allowHosts: readonly string[]
  readonly clock: Clock
  readonly log: Log
}

const pageHeaders: readonly string[] = [
  'content-security-policy',
  "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy',
  'no-referrer',
  'x-content-type-options',
  'nosniff',
  'cache-control',
  'no-store',
]

const bodyBytes = 65_536
/** The maximum size of unread responses and the maximum number of waiting requests, per browser. */
const maxPendingBytes = 1_048_576
const maxWaiting = 32

export class DashboardServer extends HttpServer {
  readonly access = new Access()
  readonly #options: DashboardServerOptions
  readonly #polls = new WeakMap<ViewSource, ViewPolls>()
  /** Differs after a restart, so that the page asks for everything again. */
  readonly #id = newUuid()
  readonly #closing = new AbortController()

  constructor(options: DashboardServerOptions) {
    const { allowHosts, log } = options
    super({
      ...options,
      keys: null,
      usesCookies: true,
      isBackground: true,
      headers: pageHeaders,
      limits: { ...defaultHttpLimits, allowedHosts: allowHosts, drainSeconds: 1 },
      hostOption: 'allowHosts',
      errors: createErrorReplies(log),
    })
    this.#options = options
    const unknown = notFoundError('The page is at the address of the link.')
    this.setRoutes(this.#routes(), () => unknown)
  }

  /** Answers waiting requests, so that the server need not wait for them. */
  protected override async onStop(): Promise<void> {
    this.#closing.abort()
    await super.onStop()
  }

  #routes(): Route[] {
    const files = Array.from(this.#options.files, ([name, file]): Route => ({
      method: 'GET',
      path: name === startPage ? '/' : `/${name}`,
      answer: (exchange) => this.#sendFile(exchange, file),
    }))
    return [
      ...files,
      {
        method: 'POST',
        path: '/views',
        bodyBytes,
        answer: (exchange, body) => this.#answerViews(exchange, body),
      },
      { method: 'POST', path: '/link', bodyBytes, answer: (exchange) => this.#sendLink(exchange) },
      { method: 'GET', path: '/report', answer: (exchange) => this.#sendReport(exchange) },
      this.#controlRoute('cancel'),
      this.#controlRoute('retry'),
    ]
  }

  /** Sends a file of the page. If its address contains a link's token, opens the link first. */
  #sendFile(exchange: HttpExchange, { type, text }: PageFile): void {
    const { request } = exchange
    const token = paramOf(exchange, 't')
    const viewer = this.access.viewerOf(request)
    const isLink = token !== null && request.method === 'GET'
    const headers = isLink ? this.access.openLink(token, viewer) : null
    const all = ['content-type', type, ...(headers ?? [])]
    if (viewer !== null) sendBounded(exchange, viewer, text, all)
    else if (headers === null) sendNeedsLink(exchange)
    else exchange.sendText(200, text, all)
  }

  async #answerViews(exchange: HttpExchange, body: unknown): Promise<void> {
    const viewer = this.#expectViewer(exchange)
    const request = toViewsRequest(body)
    if (viewer.waiting >= maxWaiting) throw tooMany()
    viewer.waiting++
    try {
      const signal = AbortSignal.any([exchange.signal, this.#closing.signal])
      const source = this.#options.sources.find(request.record)
      const answers = await this.#pollsOf(source).poll(request, signal)
      const rights = JSON.stringify(this.#rightsOf(viewer, source))
      const text = `{"server":"${this.#id}","rights":${rights},"answers":[${answers.join(',')}]}`
      sendBounded(exchange, viewer, text, ['content-type', 'application/json'])
    } finally {
      viewer.waiting--
    }
  }

  #pollsOf(source: ViewSource): ViewPolls {
    const known = this.#polls.get(source)
    const polls = known ?? new ViewPolls(source, this.#options.clock)
    if (known === undefined) this.#polls.set(source, polls)
    return polls
  }

  #rightsOf({ mayControl }: Viewer, source: ViewSource): ViewerRights {
    const { control } = this.#options
    return {
      cancel: mayControl && control?.cancel !== undefined,
      retry: mayControl && control?.retry !== undefined,
      report: source.hasReport,
    }
  }

  #sendLink(exchange: HttpExchange): void {
    this.#expectViewer(exchange)
    const link: NewLink = { token: this.access.createLink(false) }
    exchange.sendJson(200, link)
  }

  async #sendReport(exchange: HttpExchange): Promise<void> {
    this.#expectViewer(exchange)
    const record = paramOf(exchange, 'record') ?? undefined
    const source = this.#options.sources.find(record)
    if (!source.hasReport) throw noReport
    await sendPieces(exchange, source.report(), reportHeaders)
  }

  #controlRoute(action: 'cancel' | 'retry'): Route {
    return {
      method: 'POST',
      path: `/control/${action}`,
      bodyBytes,
      answer: async (exchange, body) => {
        const viewer = this.#expectViewer(exchange)
        if (!viewer.mayControl) throw noControl
        const { control } = this.#options
        const { uid } = Object(body) as { readonly uid?: unknown }
        if (typeof uid !== 'string' || uid === '') throw noUid
        if (control?.[action] === undefined) throw noAction
        const controlResult: ControlResult = { result: toJson(await control[action](uid)) }
        exchange.sendJson(200, controlResult)
      },
    }
  }

  #expectViewer({ request }: HttpExchange): Viewer {
    const viewer = this.access.viewerOf(request)
    if (viewer === null) throw needsLink
    return viewer
  }
}

const paramOf = ({ request }: HttpExchange, name: string): string | null =>
  new URLSearchParams((request.url ?? '').split('?', 2)[1]).get(name)

/**
 * Sends a response. Throws if too many bytes of earlier responses are still unread, because they
 * take memory of this process.
 */
function sendBounded(
  exchange: HttpExchange,
  viewer: Viewer,
  text: string,
  headers: readonly string[],
): void {
  if (exchange.isGone) return
  const bytes = Buffer.byteLength(text)
  if (viewer.pendingBytes + bytes > maxPendingBytes) throw tooMany()
  viewer.pendingBytes += bytes
  exchange.response.once('close', () => (viewer.pendingBytes -= bytes))
  exchange.sendText(200, text, headers)
}

/** Sends the next piece whenever the browser has read the previous ones. */
async function sendPieces(
  exchange: HttpExchange,
  pieces: AsyncIterable<string>,
  headers: readonly string[],
): Promise<void> {
  const { response, signal } = exchange
  for await (const piece of pieces) {
    if (!response.headersSent) exchange.writeHead(200, headers)
    if (response.write(piece)) continue
    const stopWatching = exchange.watchReader()
    await events.once(response, 'drain', { signal }).finally(stopWatching)
  }
  exchange.end()
}

/** Converts the result of a control action, which may be any value. */
const toJson = (value: unknown): ControlResult['result'] =>
  typeof value === 'boolean' || typeof value === 'string' ? value : null

const reportHeaders = [
  'content-type',
  'text/html; charset=utf-8',
  'content-disposition',
  'attachment; filename="report.html"',
]

const linkAdvice =
  'Each link works once. Open a new link: "Copy link" on an open page makes one, and so does ' +
  'starting the dashboard again.'

const sendNeedsLink = (exchange: HttpExchange): void =>
  exchange.sendText(401, `<!doctype html><title>tutti</title><p>${linkAdvice}</p>\n`, [
    'content-type',
    'text/html; charset=utf-8',
  ])

const needsLink = new HttpError(401, linkAdvice, { code: 'link_needed' })
const noControl = new HttpError(403, 'This browser may only look. Open the link for control.', {
  code: 'control_needed',
})
const noAction = new HttpError(404, 'This dashboard does not have this action.', {
  code: 'unknown_url',
})
const noUid = new HttpError(400, 'The body needs the `uid` of a task.', {
  code: 'missing_required_parameter',
})
const noReport = new HttpError(404, 'There is no report, because there is no record.', {
  code: 'unknown_url',
})
const tooMany = (): HttpError =>
  new HttpError(429, 'This browser has too many requests open, or does not read the answers.', {
    code: 'too_many_requests',
    headers: ['retry-after', '1'],
  })

function createErrorReplies(log: Log): ErrorReplies {
  return {
    toHttpError(thrown) {
      if (thrown instanceof HttpError) return thrown
      // Errors of this package are written for users; others may contain anything.
      if (TuttiError.isInstance(thrown)) {
        return new HttpError(409, messageOf(thrown), { code: thrown.code })
      }
      log.warn('DashboardRequestFailed', messageOf(thrown))
      return new HttpError(500, 'The request failed.', { code: 'dashboard_error' })
    },
    toBody: ({ code, message }) => ({ error: { code, message } }),
    toAbortReason: (text) => new Error(text),
    toListenError: (message, details) => new BackendError(message, details),
  }
}
