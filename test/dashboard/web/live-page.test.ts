import { createServer, request } from 'node:http'
import { dirname } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished } from 'vitest'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import { type EventClass, stampEvent } from '../../../src/events/event.ts'
import * as libraryEvents from '../../../src/events/library-events.ts'
import { ResourceUpdate } from '../../../src/events/resource-update.ts'
import * as vocabulary from '../../../src/events/vocabulary.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { TelemetryManager } from '../../../src/telemetry/manager.ts'
import type { LiveFeed } from '../../../src/dashboard/sources/live-source.ts'
import { violationsOf } from '../../report/browser.ts'
import { needs } from '../../require.ts'
import { tempFolder } from '../../telemetry/open-telemetry.ts'
import { Forwarder } from '../test-dashboard.ts'
import {
  chromium,
  expectNoProblems,
  numberOf,
  openPage,
  rowsOf,
  showPanel,
  startWithPage,
  textsOf,
  useBrowser,
  waitForText,
} from './open-page.ts'

useBrowser()

const classes = new Map(
  Object.values<unknown>({ ...vocabulary, ...libraryEvents, ResourceUpdate })
    .filter((one) => typeof one === 'function' && 'eventType' in one)
    .map((one) => [(one as EventClass).eventType, one as EventClass]),
)

const emit = (telemetry: TelemetryManager, type: string, fields: object): void => {
  const eventClass = classes.get(type)
  if (eventClass === undefined) throw new Error(`there is no event ${type}`)
  const common = { session_id: 's-live', backend: 'local', node_id: 'n1' }
  telemetry.emit(stampEvent(eventClass, systemClock, { ...common, ...fields }))
}

/** The events of a task, up to and including `last`. */
function emitTask(telemetry: TelemetryManager, uid: string, last: string, more: object = {}): void {
  const worker = `n1/local/w${uid.length % 2}`
  const attributes = { executable: 'simulate', task_type: 'function', worker_id: worker, ...more }
  const isEnd = last === 'TaskCompleted' || last === 'TaskFailed'
  for (const type of ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', last]) {
    emit(telemetry, type, {
      task_id: uid,
      attributes,
      ...(isEnd && type === last ? { duration_seconds: 1, error_type: 'RangeError' } : {}),
    })
    if (type === last) return
  }
}

/** A session that runs: one task on each worker, one failed, one that waits for another. */
async function startRun(checkpointPath?: string): Promise<TelemetryManager> {
  const telemetry = new TelemetryManager({
    sessionId: 's-live',
    ...(checkpointPath === undefined ? {} : { checkpointPath }),
  })
  await telemetry.start()
  onTestFinished(() => telemetry.stop())
  const node = { cores: 1, gpus: 0, memory_mb: 100, labels: {}, workers: 2 }
  emit(telemetry, 'tutti.NodeJoined', node)
  emitTask(telemetry, 'done', 'TaskCompleted')
  emitTask(telemetry, 'failing', 'TaskFailed', { error_message: 'bad seed 17' })
  emitTask(telemetry, 'long', 'TaskStarted')
  emitTask(telemetry, 'after', 'TaskCreated', { dependencies: ['long'] })
  await telemetry.flush()
  return telemetry
}

/** A page of another browser, which has none of the cookies. */
async function openBrowserContext(page: Page): Promise<Page> {
  const context = await page.context().browser()?.newContext()
  if (context === undefined) throw new Error('the browser was closed')
  onTestFinished(() => context.close())
  return await context.newPage()
}

needs(chromium)('two clicks answer the questions about a run', async () => {
  const opened = await openPage(await startRun(tempFolder()))
  const { page } = opened
  const toStart = async (): Promise<void> => {
    await page.goto(new URL('./#', page.url()).href)
    await page.waitForSelector('.drawer', { state: 'detached' })
  }
  // The longest running task.
  await page.click('button[aria-label="show 1 running task"]')
  await waitForText(page, '[aria-label=Tasks] th[aria-sort=descending]', 'ran')
  await page.locator('[aria-label=Tasks] button.link').first().click()
  await waitForText(page, '.drawer h2', 'long')
  await toStart()
  // The cause of a failure.
  await page.click('button[aria-label="show 1 failed task"]')
  await waitForText(page, '.groups h3', 'RangeError')
  await page.locator('.groups button.link').first().click()
  await waitForText(page, '.drawer pre', 'bad seed 17')
  await toStart()
  // What a task waits for.
  await page.click('button[aria-label="show 1 waiting task"]')
  await page.locator('[aria-label=Tasks] button.link').first().click()
  await waitForText(page, '.drawer section:has(h3:text-is("Waits for"))', 'long')
  await toStart()
  // An idle worker, and a full node.
  await page.click('#tab-workers')
  const workers = await rowsOf(page, 'Workers')
  expect(
    workers.map(([, state]) => state).toSorted((a = '', b = '') => a.localeCompare(b)),
  ).toEqual(['busy', 'idle'])
  expect((await rowsOf(page, 'Nodes')).map(([node, state]) => [node, state])).toEqual([
    ['n1', 'full'],
  ])
  expectNoProblems(opened)
})

needs(chromium)('a panel that opens again does not begin with rows of another query', async () => {
  const { page } = await openPage(await startRun(tempFolder()))
  const first = page.locator('[aria-label=Tasks] button.link').first()
  await page.click('button[aria-label="show 1 running task"]')
  await waitForText(page, '[aria-label=Tasks] td', 'long')
  await page.click('#tab-progress')
  await rowsOf(page, 'Tasks by name')
  const { promise: isAllowed, resolve: allow } = Promise.withResolvers<void>()
  await page.route('**/views', async (route) => {
    await isAllowed
    // The page may have canceled the request.
    await route.continue().catch(() => undefined)
  })
  await page.click('button[aria-label="show 1 waiting task"]')
  await waitForText(page, '[data-panel=tasks]', 'Waiting for the server')
  expect(await first.count()).toBe(0)
  allow()
  await first.click()
  await waitForText(page, '.drawer h2', 'after')
})

needs(chromium)('the page follows a run while it grows, and pauses on demand', async () => {
  const telemetry = await startRun(tempFolder())
  const opened = await openPage(telemetry)
  const { page } = opened
  await waitForText(page, '.state', 'running')
  expect(await numberOf(page, 'running')).toBe('1')
  emitTask(telemetry, 'second', 'TaskCompleted')
  await telemetry.flush()
  await waitForText(page, '.numbers dd', /^2 \/ 5$/)
  await page.click('button:text("Pause")')
  await waitForText(page, '.dot', 'paused')
  emitTask(telemetry, 'third', 'TaskCompleted')
  await telemetry.flush()
  expect(await numberOf(page, 'done')).toBe('2 / 5')
  await page.keyboard.press('p')
  await waitForText(page, '.numbers dd', /^3 \/ 6$/)
  await telemetry.stop()
  await waitForText(page, '.state', 'ended')
  expectNoProblems(opened)
})

needs(chromium)('without a record the page says when its history begins', async () => {
  const telemetry = await startRun()
  const { page } = await openPage(telemetry)
  await waitForText(page, '.notice', 'Shown from')
  emitTask(telemetry, 'later', 'TaskCompleted')
  await waitForText(page, '.numbers dd', /^1 \/ /)
})

needs(chromium)('row 130: a page whose server was ended asks for a new link', async () => {
  const telemetry = await startRun(tempFolder())
  const { page, dashboard } = await openPage(telemetry)
  const forwarder = await Forwarder.start()
  await page.goto(forwarder.show(dashboard))
  await waitForText(page, '.dot', 'connected')
  forwarder.target = null
  await dashboard.close()
  await waitForText(page, '[role=alert]', 'The server does not answer')
  const link = forwarder.show(await startWithPage(telemetry))
  await waitForText(page, '[role=alert]', 'Open a new link')
  await page.goto(link)
  await waitForText(page, '.dot', 'connected')
  expect(await textsOf(page, '[role=alert]')).toEqual([])
})

needs(chromium)('row 130: a page that lost its connection shows the run again', async () => {
  const telemetry = await startRun(tempFolder())
  const { page } = await openPage(telemetry)
  await page.route('**/views', (route) => route.abort())
  emitTask(telemetry, 'meanwhile', 'TaskCompleted')
  await telemetry.flush()
  await waitForText(page, '[role=alert]', 'The server does not answer')
  await page.unroute('**/views')
  await waitForText(page, '.numbers dd', /^2 \/ 5$/)
  await waitForText(page, '.dot', 'connected')
})

needs(chromium)('row 93: a page of another origin cannot control the run', async () => {
  const canceled: string[] = []
  const control = { cancel: (uid: string) => canceled.push(uid) }
  const { page, context, dashboard } = await openPage(await startRun(tempFolder()), '', { control })
  const foreign = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html>foreign')
  })
  await new Promise<void>((resolve) => void foreign.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void foreign.close())
  const other = await context.newPage()
  await other.goto(`http://127.0.0.1:${(foreign.address() as AddressInfo).port}/`)
  const target = new URL('control/cancel', dashboard.url).href
  const refused = other.waitForResponse(target)
  await other.evaluate(`fetch('${target}', { method: 'POST', mode: 'no-cors',
    credentials: 'include', body: '{"uid":"long"}' }).catch(() => null)`)
  expect((await refused).status()).toBe(403)
  expect(canceled).toEqual([])
  // The page itself may.
  await page.goto(new URL('./#task=long', page.url()).href)
  const isSaid = waitForText(page, '.actions [role=status]', 'Canceled: 1 task')
  await page.click('button:text("Cancel task")')
  await isSaid
  expect(canceled).toEqual(['long'])
})

needs(chromium)(
  'row 93: the tasks of a failure are retried from the page, with control',
  async () => {
    const retried: string[] = []
    const control = { retry: (uid: string) => retried.push(uid) }
    const telemetry = await startRun(tempFolder())
    const { page, dashboard } = await openPage(telemetry, '#panel=failures', { control })
    const isSaid = waitForText(page, '.actions [role=status]', 'Retried: 1 task')
    await page.click('button:text("Retry 1 task")')
    await isSaid
    expect(retried).toEqual(['failing'])
    // The method is missing, so there is no button for it.
    await page.goto(new URL('./#task=long', page.url()).href)
    await waitForText(page, '.drawer h2', 'long')
    expect(await page.locator('button:text("Cancel task")').count()).toBe(0)
    const viewer = await openBrowserContext(page)
    await viewer.goto(`${dashboard.url}#panel=failures`)
    await waitForText(viewer, '.groups h3', 'RangeError')
    expect(await viewer.locator('button:text("Retry")').count()).toBe(0)
  },
)

needs(chromium)('the page works below a path of a proxy', async () => {
  const { page, dashboard, problems } = await openPage(await startRun(tempFolder()))
  const proxy = createServer(({ url = '', method, headers }, response) => {
    const target = new URL(url.replace('/runs/one/', '/'), dashboard.url)
    const passed = request(target, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.headers)
      answer.pipe(response)
    })
    response.req.pipe(passed)
  })
  await new Promise<void>((resolve) => void proxy.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void proxy.close())
  const base = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/runs/one/`
  await page.goto(base + new URL(dashboard.link()).search)
  await waitForText(page, '.numbers dd', /^1 \/ 4$/)
  const saved = page.waitForEvent('download')
  await page.click('button:text("Save report")')
  expect(await text(await (await saved).createReadStream())).toContain('s-live')
  const others = problems.filter((problem) => !problem.startsWith(`asked for ${base}`))
  expect(others).toEqual([])
})

needs(chromium)('a copied link opens the same view in another browser, once', async () => {
  const { page, context } = await openPage(await startRun(tempFolder()), '#panel=workers')
  await context.grantPermissions(['clipboard-read', 'clipboard-write'])
  const isSaid = waitForText(page, '.actions [role=status]', 'Link copied')
  await page.click('button:text("Copy link")')
  await isSaid
  const link = (await page.evaluate('navigator.clipboard.readText()')) as string
  const second = await openBrowserContext(page)
  await second.goto(link)
  await second.waitForSelector('[data-panel=workers]')
  const refused = await (await openBrowserContext(page)).goto(link)
  expect(refused?.status()).toBe(401)
})

/** A server of a model without a session, as `tutti serve --dashboard` shows it. */
const modelServer: LiveFeed = {
  sessionId: 'inference',
  checkpointFile: null,
  beginReason: null,
  subscribe: () => () => undefined,
  serving: () => ({ model: 'small', workers: 2, running: 3, queued: 1 }),
}

needs(chromium)('a server of models is shown by its requests, not as a run', async () => {
  const opened = await openPage(modelServer, '#panel=tasks')
  const { page } = opened
  await waitForText(page, '.state', 'serving')
  await waitForText(page, '.lead', '2 workers of small: 3 requests running, 1 waiting.')
  expect(await numberOf(page, 'running')).toBe('3')
  expect(await textsOf(page, '[role=tab]')).toEqual(['inference', 'events', 'health'])
  expect(await textsOf(page, '[aria-selected=true]')).toEqual(['inference'])
  const [[model, running, waiting] = []] = await rowsOf(page, 'Models')
  expect([model, running, waiting]).toEqual(['small', '3', '1'])
  expect(await page.locator('.stream, .replay').count()).toBe(0)
  expect(await textsOf(page, 'button:text("Replay")')).toEqual([])
  expect(await violationsOf(page, null)).toEqual([])
  await page.keyboard.press('2')
  await page.waitForSelector('[data-panel=events]')
  expectNoProblems(opened)
})

needs(chromium)('a folder is shown as a list of records; clicks open one and go back', async () => {
  const telemetry = await startRun(tempFolder())
  await telemetry.stop()
  const opened = await openPage(dirname(telemetry.checkpointFile ?? ''))
  const { page } = opened
  const [[name, state, , , done, failed] = []] = await rowsOf(page, 'Records')
  expect([name, state, done, failed]).toEqual(['s-live', 'ended', '1', '1'])
  expect(await textsOf(page, '.notice')).toEqual([])
  await page.click('[aria-label=Records] button')
  await waitForText(page, '.state', 'ended')
  expect(await numberOf(page, 'done')).toBe('1 / 4')
  const saved = page.waitForEvent('download')
  await page.click('button:text("Save report")')
  const report = await text(await (await saved).createReadStream())
  expect(report).toMatch(/^<!doctype html>[^]*s-live/i)
  await page.goBack()
  await rowsOf(page, 'Records')
  expect(await textsOf(page, 'header .link')).toEqual([])
  await page.click('[aria-label=Records] button')
  await waitForText(page, '.state', 'ended')
  await showPanel(page, 'tasks')
  await page.click('header button:text("Records")')
  await rowsOf(page, 'Records')
  expect(new URL(page.url()).hash).toBe('')
  expectNoProblems(opened)
})
