/** Reports in a real browser: pictures of them, and what is wrong with them there. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { existsSync } from 'node:fs'
import axe from 'axe-core'
import { type Browser, chromium, type Page } from 'playwright-core'
import { byRun } from '../long-run.ts'

/** Ignored by git; a person looks at what is in it: whole pages after the long run. */
export const pictures = fileURLToPath(new URL('../../.cache/report-pictures/', import.meta.url))

export async function openBrowser(): Promise<Browser> {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const executablePath = folders.map((one) => join(one, 'chromium')).find(existsSync) ?? ''
  // Tests may run as root in a container, where the sandbox of chromium cannot start.
  const args = ['--no-sandbox', '--disable-gpu']
  return await chromium.launch({ executablePath, args, timeout: 0 })
}

export interface Seen {
  /** Errors of the console and requests that left the page. */
  readonly problems: readonly string[]
  /** The findings of axe-core, as rules with the first element each. */
  readonly violations: readonly string[]
  /** How much wider the page is than its window. */
  readonly overflow: number
  /** The problems of the printed page. */
  readonly paper: readonly string[]
}

/** The rules that look at colors: nothing else differs between light and dark pages. */
export const colorRules = ['color-contrast', 'link-in-text-block']

/** Light, dark and narrow, and on paper. */
export async function look(browser: Browser, name: string, html: string): Promise<Seen> {
  mkdirSync(pictures, { recursive: true })
  const file = join(pictures, `${name}.html`)
  writeFileSync(file, html)
  const page = await browser.newPage({ viewport: { width: 1100, height: 900 } })
  // The test has a limit of its own.
  page.setDefaultTimeout(0)
  const problems: string[] = []
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text())
  })
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('request', (request) => {
    if (!request.url().startsWith('file:')) problems.push(`asked for ${request.url()}`)
  })
  const violations: string[] = []
  let overflow = 0
  for (const [kind, width, colorScheme] of [
    ['light', 1100, 'light'],
    ['dark', 1100, 'dark'],
    ['narrow', 360, 'light'],
  ] as const) {
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize({ width, height: 900 })
    // No script of a page asks for the colors: it need not be loaded again for others.
    if (kind !== 'dark') await page.goto(pathToFileURL(file).href)
    // A picture of a whole page takes four times the CPU time of one of the window.
    const fullPage = byRun(false, true)
    await page.screenshot({ path: join(pictures, `${name}-${kind}.png`), fullPage })
    const rules = kind === 'dark' ? colorRules : null
    violations.push(...(await violationsOf(page, rules)).map((one) => `${kind}: ${one}`))
    overflow = Math.max(overflow, await overflowOf(page))
  }
  problems.push(...(await darkStylesOf(page)))
  await page.emulateMedia({ colorScheme: 'light' })
  const paper = await paperOf(page)
  await page.pdf({ path: join(pictures, `${name}.pdf`), format: 'A4' })
  await page.close()
  return { problems, violations, overflow, paper }
}

/** With `null`: of all rules. */
export async function violationsOf(page: Page, rules: readonly string[] | null): Promise<string[]> {
  const isThere = await page.evaluate(() => 'axe' in globalThis)
  if (!isThere) await page.evaluate(axe.source)
  return await page.evaluate(async (only) => {
    const found = globalThis as unknown as { axe: { run(options: object): Promise<AxeResult> } }
    interface AxeResult {
      violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[]
    }
    const { violations } = await found.axe.run(only === null ? {} : { runOnly: only })
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`)
  }, rules)
}

/** The changes of the styles for dark screens, besides the values of color variables. */
const darkStylesOf = (page: Page): Promise<string[]> =>
  page.evaluate(`[...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSMediaRule && rule.conditionText.includes('dark'))
    .flatMap((rule) => [...rule.cssRules])
    .flatMap((rule) => [...rule.style].map((name) => rule.selectorText + ' ' + name))
    .filter((one) => !one.startsWith(':root --'))`) as Promise<string[]>

/** A4 without the margins of the style sheet, in CSS pixels. */
const [paperWidth, paperHeight] = [703, 1016]
const headingHeight = 60

/** The page needs margins of its own, and its sentences the size of its tables. */
async function paperOf(page: Page): Promise<string[]> {
  await page.emulateMedia({ media: 'print' })
  await page.setViewportSize({ width: paperWidth, height: paperHeight })
  const found = (await page.evaluate(`(() => {
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
    const hasMargin = rules.some((one) => one instanceof CSSPageRule && one.style.margin !== '')
    const smallest = (selector) => Math.min(...[...document.querySelectorAll(selector)]
      .map((one) => Number.parseFloat(getComputedStyle(one).fontSize)))
    // An unbreakable part that does not fit below its heading leaves the heading alone on its page.
    const isTall = (one) => getComputedStyle(one).breakInside === 'avoid' &&
      one.getBoundingClientRect().height > ${paperHeight - headingHeight}
    const tall = [...document.querySelectorAll('body *')].filter(isTall)
    const hasTasks = document.getElementById('task-rows') === null ||
      document.querySelector('.paper table')?.checkVisibility() === true &&
      !document.getElementById('task-rows').checkVisibility()
    const isSmall = smallest('p, dd, ol li') < smallest('td')
    return [
      ...(hasMargin ? [] : ['no margin']),
      ...(isSmall ? ['small sentences'] : []),
      ...(hasTasks ? [] : ['no failed and slowest tasks']),
      ...tall.map((one) => 'too tall for a page: ' + one.tagName + '.' + one.getAttribute('class')),
    ]
  })()`)) as string[]
  await page.emulateMedia({ media: null })
  return found
}

export const overflowOf = (page: Page): Promise<number> =>
  page.evaluate('document.documentElement.scrollWidth - window.innerWidth') as Promise<number>
