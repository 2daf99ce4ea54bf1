/** The page of a dashboard in a real browser, and records to show there. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import type { DashboardTelemetry } from '../../../src/dashboard/sources/live-source.ts'
import {
  type Dashboard,
  type DashboardOptions,
  openDashboard,
} from '../../../src/dashboard/dashboard.ts'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { openBrowser } from '../../report/browser.ts'
import { requireCommand } from '../../require.ts'
import { tempFolder } from '../../telemetry/open-telemetry.ts'

export const chromium = requireCommand('chromium')

/** The page as `npm run build` makes it. */
const pageFolder = fileURLToPath(new URL('../../../dist/dashboard/page/', import.meta.url))

/** Ignored by git; a person looks at what is in it. */
const pictures = fileURLToPath(new URL('../../../.cache/dashboard-pictures/', import.meta.url))

/** Saves a picture of the window. */
export async function takePicture(page: Page, name: string): Promise<void> {
  mkdirSync(pictures, { recursive: true })
  await page.screenshot({ path: join(pictures, `${name}.png`) })
}

let browser: Browser | null = null

/** One browser for all tests of a file. */
export function useBrowser(): void {
  beforeAll(async () => {
    if (chromium.isMet) browser = await openBrowser()
  })
  afterAll(async () => await browser?.close())
}

export interface OpenPage {
  readonly page: Page
  readonly context: BrowserContext
  readonly dashboard: Dashboard
  /** Errors of the console, exceptions, and requests to other hosts. */
  readonly problems: readonly string[]
}

export const startWithPage = async (
  source: string | DashboardTelemetry,
  options: DashboardOptions = {},
): Promise<Dashboard> => {
  const dashboard = await openDashboard(source, { port: 0, ...options }, { pageFolder })
  onTestFinished(() => dashboard.close())
  return dashboard
}

/** Opens the page at a fragment, and waits until the whole record is shown. */
export async function openPage(
  source: string | DashboardTelemetry,
  fragment = '',
  options: DashboardOptions = {},
): Promise<OpenPage> {
  if (browser === null) throw new Error('the browser did not start')
  const dashboard = await startWithPage(source, options)
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } })
  context.setDefaultTimeout(0)
  onTestFinished(() => context.close())
  const page = await context.newPage()
  const url = dashboard.controlUrl ?? dashboard.url
  const problems = listProblems(page, new URL(url).origin)
  await page.goto(url + fragment)
  await page.waitForSelector('.numbers, [aria-labelledby=records] table')
  await page.waitForSelector('.reading', { state: 'detached' })
  return { page, context, dashboard, problems }
}

function listProblems(page: Page, origin: string): string[] {
  const problems: string[] = []
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text())
  })
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin) problems.push(`asked for ${request.url()}`)
  })
  return problems
}

/** Shows another fragment of the same page, and waits for its panel. */
export async function showPanel(page: Page, panel: string): Promise<void> {
  await page.click(`#tab-${panel}`)
  const content = panel === 'stream' ? '.alone .plot' : `[data-panel=${panel}] > h2 ~ :not(.empty)`
  await page.waitForSelector(content)
}

/** The texts of the elements that match. */
export const textsOf = async (page: Page, selector: string): Promise<string[]> =>
  (await page.locator(selector).allTextContents()).map((text) => text.trim())

/** The cells of each row of a table, all at the same moment. */
export async function rowsOf(page: Page, label: string): Promise<string[][]> {
  const rows = `[aria-label="${label}"] tbody tr`
  await page.waitForSelector(rows)
  const read = `[...document.querySelectorAll(${JSON.stringify(rows)})]
    .map((row) => [...row.cells].map((cell) => cell.textContent))`
  return (await page.evaluate(read)) as string[][]
}

/** The number below a label of the header. */
export const numberOf = async (page: Page, label: string): Promise<string> =>
  (await textsOf(page, `.numbers > div:has(dt:text-is("${label}")) dd`)).join(' ')

/** Waits until the page shows the text. */
export const waitForText = (page: Page, selector: string, text: string | RegExp): Promise<void> =>
  page.locator(selector).filter({ hasText: text }).first().waitFor()

/** The path of a record with these events. */
export function writeEvents(events: readonly ViewEvent[]): string {
  const path = join(tempFolder(), 's-1.1790000000.telemetry.jsonl')
  const lines = events.map((event, at) => {
    const ids = { event_id: String(at).padStart(32, '0'), trace_id: 'a'.repeat(32) }
    const own = { emit_time: event.event_time, span_id: 'b'.repeat(16), name: event.event_type }
    return `${JSON.stringify({ section: 'event', ...ids, ...own, ...event })}\n`
  })
  writeFileSync(path, lines.join(''))
  return path
}

/** Fails with the list of problems. */
export const expectNoProblems = ({ problems }: OpenPage): void => expect(problems).toEqual([])
