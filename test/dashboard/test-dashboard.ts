/** Records for dashboards, dashboards with a small page, and a browser's part of the requests. */

import { writeFileSync } from 'node:fs'
import { type IncomingHttpHeaders, request } from 'node:http'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { eventLine } from '../../src/checkpoint/format.ts'
import {
  type Dashboard,
  type DashboardOptions,
  type DashboardParts,
  openDashboard,
} from '../../src/dashboard/dashboard.ts'
import type { DashboardTelemetry } from '../../src/dashboard/sources/live-source.ts'
import type { HeadView, Views, ViewQuery, ViewsResponse } from '../../src/dashboard/protocol.ts'
import { type EventClass, stampEvent } from '../../src/events/event.ts'
import * as vocabulary from '../../src/events/vocabulary.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { tempFolder } from '../telemetry/open-telemetry.ts'

const clock = new ManualClock()

const classes = {
  SessionStarted: vocabulary.SessionStarted,
  SessionEnded: vocabulary.SessionEnded,
  TaskCreated: vocabulary.TaskCreated,
  TaskSubmitted: vocabulary.TaskSubmitted,
  TaskStarted: vocabulary.TaskStarted,
  TaskCompleted: vocabulary.TaskCompleted,
}

/** One line of an event, one second after the previous one. */
export function line(
  type:
    | 'SessionStarted'
    | 'SessionEnded'
    | `Task${'Created' | 'Submitted' | 'Started' | 'Completed'}`,
  task_id: string | null = null,
): string {
  void clock.advance(1000)
  const event = stampEvent(classes[type] as unknown as EventClass, clock, {
    session_id: 's-1',
    backend: 'local',
    task_id,
    node_id: 'n1',
    duration_seconds: 1,
    attributes: { executable: 'simulate', task_type: 'function', worker_id: 'n1/local/w1' },
  } as never)
  return eventLine(event, 'a'.repeat(32), 'b'.repeat(16))
}

/** The lines of a task that is done. */
export const done = (uid: string): string =>
  line('TaskCreated', uid) +
  line('TaskSubmitted', uid) +
  line('TaskStarted', uid) +
  line('TaskCompleted', uid)

/** The path of a new record with these lines. */
export function writeRecord(...lines: readonly string[]): string {
  const path = join(tempFolder(), 's-1.1700000000.telemetry.jsonl')
  writeFileSync(path, lines.join(''))
  return path
}

/** An ended run with this number of tasks. */
export const endedRecord = (tasks: number): string =>
  writeRecord(
    line('SessionStarted'),
    ...Array.from({ length: tasks }, (_, at) => done(`t${at}`)),
    line('SessionEnded'),
  )

/** A line that begins a file which continues the run of an earlier file. */
export function resumedFrom(file: string): string {
  const started = JSON.parse(line('SessionStarted')) as { readonly attributes: object }
  const attributes = { ...started.attributes, resumed_from: file }
  return `${JSON.stringify({ ...started, attributes })}\n`
}

/** A dashboard on a free port, with a page of one word. */
export async function startTestDashboard(
  source: DashboardTelemetry | string,
  options: DashboardOptions = {},
  parts: DashboardParts = {},
): Promise<Dashboard> {
  const pageFolder = tempFolder()
  writeFileSync(join(pageFolder, 'page.html'), 'page')
  writeFileSync(join(pageFolder, 'page.js'), 'script')
  const dashboard = await openDashboard(source, { port: 0, ...options }, { pageFolder, ...parts })
  onTestFinished(() => dashboard.close())
  return dashboard
}

/** A port that leads to a dashboard, as with `ssh -L`. The dashboard can be replaced. */
export class Forwarder {
  /** The port of the dashboard; `null` closes every connection. */
  target: number | null = null
  readonly #server = createServer((client) => {
    if (this.target === null) {
      client.destroy()
      return
    }
    const server = connect(this.target, '127.0.0.1')
    client.pipe(server).pipe(client)
    client.on('error', () => server.destroy())
    server.on('error', () => client.destroy())
  })

  static async start(): Promise<Forwarder> {
    const forwarder = new Forwarder()
    await new Promise<void>((resolve) => forwarder.#server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void forwarder.#server.close())
    return forwarder
  }

  /** Leads to this dashboard from now on. Returns its link by way of this port. */
  show(dashboard: Dashboard): string {
    const link = new URL(dashboard.link())
    this.target = Number(link.port)
    link.port = String((this.#server.address() as AddressInfo).port)
    return link.href
  }
}

export interface TestResponse {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
}

interface Sent {
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly method?: string
}

/** Sends a request with any `Host`, which `fetch` does not allow. */
export function send(
  url: string | URL,
  { headers, body, method }: Sent = {},
): Promise<TestResponse> {
  const text = body === undefined ? undefined : JSON.stringify(body)
  const type = text === undefined ? {} : { 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const sent = request(url, {
      method: method ?? (text === undefined ? 'GET' : 'POST'),
      headers: { ...type, ...headers },
    })
    sent.on('error', reject)
    sent.on('response', (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const { statusCode: status = 0, headers: received } = response
        resolve({ status, headers: received, text: Buffer.concat(chunks).toString() })
      })
    })
    sent.end(text)
  })
}

export const cookieOf = ({ headers }: TestResponse): string =>
  headers['set-cookie']?.[0]?.split(';')[0] ?? ''

/** A browser that has opened a link. */
export class TestViewer {
  readonly base: string
  readonly cookie: string

  constructor(base: string, cookie: string) {
    this.base = base
    this.cookie = cookie
  }

  static async open(link: string): Promise<TestViewer> {
    const response = await send(link)
    return new TestViewer(new URL(link).origin, cookieOf(response))
  }

  get(path: string): Promise<TestResponse> {
    return send(`${this.base}${path}`, { headers: { cookie: this.cookie } })
  }

  post(path: string, body: unknown = {}, headers: Sent['headers'] = {}): Promise<TestResponse> {
    return send(`${this.base}${path}`, { body, headers: { cookie: this.cookie, ...headers } })
  }

  async poll(
    query: ViewQuery,
    { version, waitSeconds = 0 }: { readonly version?: string; readonly waitSeconds?: number } = {},
  ): Promise<ViewsResponse> {
    const known = version === undefined ? {} : { version }
    const response = await this.post('/views', {
      queries: [{ id: 'one', query, ...known }],
      waitSeconds,
    })
    return JSON.parse(response.text) as ViewsResponse
  }

  async view<Kind extends ViewQuery['kind']>(
    query: Extract<ViewQuery, { readonly kind: Kind }>,
  ): Promise<Views[Kind]> {
    const { answers } = await this.poll(query)
    return answers[0]?.view as Views[Kind]
  }

  head(): Promise<HeadView> {
    return this.view({ kind: 'head', filter: {} })
  }
}
