/**
 * Serves the metrics of a running session to Prometheus, on its own HTTP server. The work of a
 * scrape is spread over several turns of the event loop.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { once as nextEvent } from 'node:events'
import { type AddressInfo, isIP } from 'node:net'
import { hostname } from 'node:os'
import { pipeline } from 'node:stream/promises'
import { createDistribution, addValue, type MetricValues } from '../../events/measurement.ts'
import { errnoOf, messageOf, TuttiError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import {
  expectBoolean,
  expectInteger,
  expectKnownKeys,
  expectObject,
  expectString,
  invalid,
} from '../../foundation/options.ts'
import type { StepScheduler, Steps } from '../../runtime/turn-budget.ts'
import { type MetricSource, nodeInstruments, taskHistograms, taskInstruments } from './metrics.ts'
import {
  distributionLines,
  headLines,
  histogramLines,
  labelText,
  pointLine,
  toMetricHead,
} from './prometheus-text.ts'
import type { TaskGroup, TaskGroups } from './task-groups.ts'
import type { TaskRow } from './task-row.ts'

/** Where the metrics are served, and with which labels. */
export interface PrometheusOptions {
  /** The port to listen on; 0 selects any free port. Default 9464. */
  readonly port?: number
  /** The address to listen on. Default `127.0.0.1`. */
  readonly host?: string
  /** Whether each task has a series, instead of each backend and executable. Default `false`. */
  readonly taskLabels?: boolean
  /**
   * Further names that the `Host` header may have. `localhost`, IP addresses, this machine's name
   * and `host` are always allowed. Other names are refused, so that a foreign web page cannot read
   * the metrics through its own host name (DNS rebinding). Default none.
   */
  readonly allowedHosts?: readonly string[]
}

/** A server that Prometheus can scrape, at `/metrics`. It does not keep the process alive. */
export interface PrometheusEndpoint extends AsyncDisposable {
  /** The URL of the server, `http://host:port`. */
  readonly url: string
  /**
   * Closes the server. `telemetry.stop()` closes it as well. Idempotent. Resolves when all sockets
   * are closed.
   */
  close(): Promise<void>
}

export interface EndpointParts {
  readonly source: MetricSource
  readonly groups: TaskGroups
  readonly scheduler: StepScheduler
}

const contentType = 'text/plain; version=0.0.4; charset=utf-8'
const tasksPerStep = 50

/** Starts the server. Resolves when it is listening. */
export async function servePrometheus(
  given: PrometheusOptions,
  parts: EndpointParts,
): Promise<PrometheusEndpoint> {
  const { port, host, taskLabels, allowedHosts } = resolvePrometheusOptions(given)
  const names = ['localhost', hostname(), host, ...allowedHosts].map((name) => name.toLowerCase())
  const known = new Set(names)
  const server = createServer((request, response) => {
    if (!isKnownHost(request.headers.host ?? '', known)) {
      return refuse(response, 403, 'unknown Host; name it in `allowedHosts` of servePrometheus\n')
    }
    void handleRequest(request, response, taskLabels, parts).catch(() => response.destroy())
  })
  await listen(server, host, port)
  server.unref()
  const address = server.address() as AddressInfo
  const close = once(async () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    server.closeAllConnections()
    await closed
  })
  const shown = host.includes(':') ? `[${host}]` : host
  return { url: `http://${shown}:${address.port}`, close, [Symbol.asyncDispose]: close }
}

function resolvePrometheusOptions(options: PrometheusOptions): Required<PrometheusOptions> {
  expectObject('options', options)
  expectKnownKeys('servePrometheus', options, ['port', 'host', 'taskLabels', 'allowedHosts'])
  const { port = 9464, host = '127.0.0.1', taskLabels = false, allowedHosts = [] } = options
  return {
    port: expectInteger('port', port, { min: 0, max: 65_535 }),
    host: expectString('host', host),
    taskLabels: expectBoolean('taskLabels', taskLabels),
    allowedHosts: expectNames('allowedHosts', allowedHosts),
  }
}

function expectNames(field: string, names: unknown): string[] {
  if (!Array.isArray(names)) throw invalid(field, 'an array', names)
  return names.map((name: unknown, at) => expectString(`${field}[${at}]`, name))
}

/**
 * IP addresses are allowed: DNS rebinding needs a name that the attacker's name server resolves.
 */
function isKnownHost(header: string, known: ReadonlySet<string>): boolean {
  const name = header.toLowerCase().replace(/:\d*$/, '')
  return known.has(name) || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0
}

async function listen(server: Server, host: string, port: number): Promise<void> {
  try {
    server.listen(port, host)
    await nextEvent(server, 'listening')
  } catch (cause) {
    const text = `cannot serve metrics on port ${port} of ${host}: ${messageOf(cause)}`
    throw new TuttiError(text, {
      code: 'PrometheusListenError',
      cause,
      ...(errnoOf(cause) === 'EADDRINUSE'
        ? { hint: 'Use another port; 0 means any free one.' }
        : {}),
    })
  }
}

async function handleRequest(
  { method, url = '' }: IncomingMessage,
  response: ServerResponse,
  taskLabels: boolean,
  parts: EndpointParts,
): Promise<void> {
  const path = url.split('?')[0]
  if (path !== '/metrics' && path !== '/') return refuse(response, 404, 'metrics are at /metrics\n')
  if (method !== 'GET' && method !== 'HEAD') return refuse(response, 405, 'use GET\n')
  response.writeHead(200, { 'content-type': contentType })
  if (method === 'HEAD') {
    response.end()
    return
  }
  // Waits for the client to read, so that memory use stays bounded.
  await pipeline(streamChunks(taskLabels, parts), response)
}

function refuse(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', allow: 'GET, HEAD' })
  response.end(text)
}

const chunkCharacters = 65_536

async function* streamChunks(taskLabels: boolean, parts: EndpointParts): AsyncGenerator<string> {
  const { source, groups, scheduler } = parts
  const chunks = taskLabels ? chunksByTask(source) : chunksByGroup(await groups.collect())
  for (let isLast = false; !isLast;) {
    const piece = await scheduler.run(nextChunk(chunks))
    yield piece.text
    isLast = piece.isLast
  }
  yield nodeLines(source) + distributionLines(source.measured.list())
}

/** Returns the values of the metrics of tasks and nodes, without measurements of backends. */
export async function collectSessionMetrics({
  source: { nodes, sessionId },
  groups,
}: Pick<EndpointParts, 'source' | 'groups'>): Promise<MetricValues> {
  const all = await groups.collect()
  const ofTasks = taskInstruments.map((instrument, at) => ({
    ...toMetricHead(instrument),
    points: all.map(({ labels, sums }) => ({ labels, value: sums[at] ?? 0 })),
  }))
  const ofNodes = nodeInstruments.map((instrument) => ({
    ...toMetricHead(instrument),
    points: [...nodes.nodes.values()].flatMap((node) => {
      const labels = { session_id: sessionId, backend: node.backend, node_id: node.nodeId }
      const value = instrument.perNode(node)
      return value === null ? [] : [{ labels, value }]
    }),
  }))
  const distributions = all.flatMap((group) => group.distributions)
  return {
    metrics: [...ofTasks, ...ofNodes],
    distributions: distributions.filter(({ count }) => count > 0),
  }
}

function* nextChunk(chunks: Iterator<string>): Steps<{ text: string; isLast: boolean }> {
  let text = ''
  while (text.length < chunkCharacters) {
    const { done, value } = chunks.next()
    if (done === true) return { text, isLast: true }
    text += value
    yield
  }
  return { text, isLast: false }
}

function* chunksByGroup(groups: readonly TaskGroup[]): Generator<string> {
  const labels = groups.map((group) => labelText(group.labels))
  for (const [at, instrument] of taskInstruments.entries()) {
    const head = toMetricHead(instrument)
    yield headLines(head)
    for (const [index, { sums }] of groups.entries()) {
      yield pointLine(head, labels[index] ?? '', sums[at] ?? 0)
    }
  }
  for (const [at, instrument] of taskHistograms.entries()) {
    yield headLines({ ...instrument, kind: 'histogram' })
    for (const [index, { distributions }] of groups.entries()) {
      const distribution = distributions[at]
      if (distribution === undefined || distribution.count === 0) continue
      yield histogramLines(distribution, labels[index] ?? '')
    }
  }
}

/** Each metric needs a pass over the tasks, because the format groups series by metric. */
function* chunksByTask(source: MetricSource): Generator<string> {
  for (const instrument of taskInstruments) {
    const head = toMetricHead(instrument)
    yield headLines(head)
    yield* linesPerTask(source, (record, labels) => {
      const value = instrument.perTask(record)
      return value === null ? '' : pointLine(head, labels(), value)
    })
  }
  for (const instrument of taskHistograms) {
    yield headLines({ ...instrument, kind: 'histogram' })
    yield* linesPerTask(source, (record, labels) => {
      const seconds = instrument.perTask(record)
      if (seconds === null) return ''
      const distribution = createDistribution(instrument, {})
      addValue(distribution, seconds)
      return histogramLines(distribution, labels())
    })
  }
}

function* linesPerTask(
  { tasks, sessionId }: MetricSource,
  toLines: (record: TaskRow, labels: () => string) => string,
): Generator<string> {
  let text = ''
  let count = 0
  for (const record of tasks.records()) {
    text += toLines(record, () => labelText(record.labelsIn(sessionId)))
    if (++count % tasksPerStep !== 0) continue
    yield text
    text = ''
  }
  yield text
}

function nodeLines({ nodes, sessionId }: MetricSource): string {
  let text = ''
  for (const instrument of nodeInstruments) {
    const head = toMetricHead(instrument)
    text += headLines(head)
    for (const node of nodes.nodes.values()) {
      const value = instrument.perNode(node)
      const labels = { session_id: sessionId, backend: node.backend, node_id: node.nodeId }
      if (value !== null) text += pointLine(head, labelText(labels), value)
    }
  }
  return text
}
