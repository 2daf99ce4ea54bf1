/**
 * The dashboard: what it costs a run, and how fast its page is. The page is opened in chromium on a
 * record of a million tasks, which takes 2.8 GB in the temporary folder; `TASKS=100000` is enough
 * to see the ratios. All numbers are from one run; ratios are of medians of interleaved processes.
 * `dashboard.ts cost` and `dashboard.ts page` measure only one of the two.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { chromium, type Page, type Request } from 'playwright-core'
import type { ViewsRequest } from '../src/dashboard/protocol.ts'
import type { modes } from './dashboard-modes.ts'
import { command } from './command-usage.ts'
import { measureModes, median, table, timed } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const tasks = Number((process.env['TASKS'] ??= '1000000'))
const steps = 40
const unreadViewers = 50

const folder = mkdtempSync(join(tmpdir(), 'tutti-dashboard-'))
process.env['RECORD_FOLDER'] = folder
try {
  const [, , part] = process.argv
  if (part !== 'page') reportCost()
  if (part !== 'cost') {
    measureModes(new URL('view-modes.ts', import.meta.url), ['write'], 1)
    await reportPage()
  }
} finally {
  rmSync(folder, { recursive: true })
}

function reportCost(): void {
  const names: readonly (keyof typeof modes)[] = ['without', 'again', 'idle', 'watched']
  const of = measureModes(new URL('dashboard-modes.ts', import.meta.url), names, runs)
  const row = (what: string, name: keyof typeof modes, wanted: string) => {
    const ratio = of(name, 'perSecond') / of('without', 'perSecond')
    return [what, Math.round(of(name, 'perSecond')), ratio.toFixed(3), wanted]
  }
  table(
    ['functions with telemetry and a record', 'per second', 'ratio', 'wanted'],
    [
      row('without a dashboard', 'without', ''),
      row('the same again', 'again', ''),
      row('with a dashboard without a viewer', 'idle', '0.98'),
      row('with one viewer', 'watched', '0.90'),
      ['answers to the viewer', of('watched', 'answers').toFixed(1), '', ''],
    ],
  )
}

async function reportPage(): Promise<void> {
  const record = join(folder, readdirSync(folder).find((name) => name.endsWith('.jsonl')) ?? '')
  const { server, url } = await startServer(record)
  const browser = await chromium.launch({ executablePath: findChromium(), args: ['--no-sandbox'] })
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } })
    page.setDefaultTimeout(0)
    const paint = await timed(async () => {
      await page.goto(url)
      await page.waitForSelector('.numbers')
    })
    const reading = await timed(() => page.waitForSelector('.reading', { state: 'detached' }))
    const atOnce = await timed(async () => {
      await page.reload()
      await page.waitForSelector('.plot')
    })
    const zoomed = await measureSteps(page, zoom)
    const brushed = await measureSteps(page, brush)
    const memory = memoryOf(server, 'VmRSS')
    const peak = memoryOf(server, 'VmHWM')
    const unread = await measureUnread(page, server)
    table(
      [`a record of ${tasks.toLocaleString('en')} tasks`, 'measured', 'wanted'],
      [
        ['first useful paint', `${paint.toFixed(2)} s`, '2 s'],
        ['the whole record is read after', `${reading.toFixed(1)} s`, ''],
        ['first useful paint once it is read', `${atOnce.toFixed(2)} s`, '2 s'],
        ['p95 of a frame while zooming', milliseconds(zoomed.frames), '50 ms'],
        ['p95 of an answer while zooming', milliseconds(zoomed.answers), '100 ms'],
        ['p95 of a frame while selecting', milliseconds(brushed.frames), '50 ms'],
        ['p95 of an answer while selecting', milliseconds(brushed.answers), '100 ms'],
        ['memory of the server', `${Math.round(memory)} MB`, '500 MB'],
        ['most memory of the server', `${Math.round(peak)} MB`, '500 MB'],
        ['memory for a viewer that never reads', `${unread.toFixed(2)} MB`, '1 MiB'],
        ['the page, gzipped', `${Math.round(pageBytes() / 1000)} kB`, '150 KB'],
      ],
    )
  } finally {
    await browser.close()
    server.kill()
  }
}

/** The built command, in its own process. */
async function startServer(
  record: string,
): Promise<{ readonly server: ChildProcess; readonly url: string }> {
  const args = [command, 'dashboard', record, '--port', '0']
  const server = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  for await (const line of createInterface({ input: server.stdout })) {
    const url = /http\S+/.exec(line)?.[0]
    if (url !== undefined) return { server, url }
  }
  throw new Error('the dashboard did not start')
}

function findChromium(): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const found = folders.map((one) => join(one, 'chromium')).find((path) => existsSync(path))
  if (found === undefined) throw new Error('chromium is not installed')
  return found
}

interface Steps {
  readonly frames: readonly number[]
  readonly answers: readonly number[]
}

/** The times of frames, and of answers to new queries, while the user does something. */
async function measureSteps(
  page: Page,
  step: (page: Page, at: number) => Promise<unknown>,
): Promise<Steps> {
  const answers: number[] = []
  // A request without a new query waits for a change.
  const isNew = (request: Request): boolean =>
    request.url().endsWith('/views') &&
    (request.postDataJSON() as ViewsRequest).queries.some(({ version }) => version === undefined)
  const finished = (request: Request): void => {
    const { requestStart, responseEnd } = request.timing()
    if (isNew(request)) answers.push(responseEnd - requestStart)
  }
  page.on('requestfinished', finished)
  await page.evaluate(`(() => {
    window.frames = []
    let last = performance.now()
    const frame = (now) => {
      window.frames.push(now - last)
      last = now
      requestAnimationFrame(frame)
    }
    requestAnimationFrame(frame)
  })()`)
  for (let at = 0; at < steps; at++) {
    const answered = page.waitForEvent('requestfinished', isNew)
    await step(page, at)
    await answered
  }
  page.off('requestfinished', finished)
  return { frames: (await page.evaluate('window.frames')) as number[], answers }
}

async function zoom(page: Page, at: number): Promise<void> {
  if (at === 0) await page.locator('.plot').hover()
  await page.mouse.wheel(0, at % 8 < 4 ? -200 : 200)
}

async function brush(page: Page, at: number): Promise<void> {
  const box = await page.locator('.plot').boundingBox()
  if (box === null) throw new Error('the stream is not visible')
  if (at === 0) {
    await page.mouse.move(box.x + 10, box.y + 10)
    await page.mouse.down()
  }
  await page.mouse.move(box.x + 20 + (at * (box.width - 40)) / steps, box.y + 10)
  if (at === steps - 1) await page.mouse.up()
}

function milliseconds(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b)
  const p95 = sorted[Math.floor(sorted.length * 0.95)] ?? Number.NaN
  return `${p95.toFixed(0)} ms (p50 ${median(values).toFixed(0)} ms)`
}

/** Resident memory in MB: at the moment, or the most until now. */
function memoryOf({ pid }: ChildProcess, key: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(String.raw`${key}:\s+(\d+)`).exec(status)?.[1]) / 1000
}

/** Opens viewers that ask for views and never read. Returns the memory per viewer in MB. */
async function measureUnread(page: Page, server: ChildProcess): Promise<number> {
  const { hostname, port } = new URL(page.url())
  const [cookie] = await page.context().cookies()
  const query = { kind: 'stream', filter: {}, range: {}, cells: 4000 }
  const body = JSON.stringify({ queries: [{ id: 'one', query }], waitSeconds: 25 })
  const head = [
    'POST /views HTTP/1.1',
    `host: ${hostname}:${port}`,
    `cookie: ${cookie?.name}=${cookie?.value}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
  ]
  const before = memoryOf(server, 'VmRSS')
  const sockets = Array.from({ length: unreadViewers }, () => connect(Number(port), hostname))
  for (const socket of sockets) socket.pause().write(`${head.join('\r\n')}\r\n\r\n${body}`)
  // The server has answered the viewers before it answers this page.
  for (let at = 0; at < 3; at++) {
    await page.reload()
    await page.waitForSelector('.plot')
  }
  const added = memoryOf(server, 'VmRSS') - before
  for (const socket of sockets) socket.destroy()
  return added / unreadViewers
}

function pageBytes(): number {
  const built = fileURLToPath(new URL('../dist/dashboard/page/', import.meta.url))
  const files = readdirSync(built).map((name) => readFileSync(join(built, name)))
  return files.reduce((sum, file) => sum + gzipSync(file).length, 0)
}
