import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect } from 'vitest'
import type { Browser } from 'playwright-core'
import { renderComparison } from '../../src/report/comparison.ts'
import { renderReport } from '../../src/report/page/document.ts'
import { byRun, hangMs } from '../long-run.ts'
import { passOver } from '../views/synthetic-run.ts'
import { recordFolder } from '../cli/reading/record-file.ts'
import { startCommandIn } from '../cli/run-command.ts'
import { needs, requireCommand } from '../require.ts'
import { look, openBrowser, pictures } from './browser.ts'
import { boundedRuns, largePass, mixedEvents, reportOf, reportOfRun } from './synthetic-reports.ts'

const chromium = requireCommand('chromium')
let browser: Browser | null = null
beforeAll(async () => {
  if (chromium.isMet) browser = await openBrowser()
})
afterAll(async () => await browser?.close())

const folder = recordFolder()
afterAll(() => folder.remove())

/** The report of the demo as a person makes it. */
async function renderDemo(): Promise<string[]> {
  const run = (...args: readonly string[]) => startCommandIn(folder.path, args).ended
  await run('demo', '--simulations', '20')
  return [(await run('report', '-o', '-')).stdout]
}

const pages: Readonly<Record<string, () => Iterable<string> | Promise<Iterable<string>>>> = {
  demo: renderDemo,
  mixed: () => renderReport(reportOf(passOver(mixedEvents()))),
  failing: () => renderReport(reportOf(passOver(failingEvents()), { bad: 3 })),
  chain: () => renderReport(reportOfRun(boundedRuns.chain)),
  large: () => renderReport(reportOf(largePass(byRun(12_000, 100_000)))),
  // More workers than rows.
  wide: () => renderReport(reportOfRun(wideRun)),
  compared: () => {
    const [before, after] = [mixedEvents(), mixedEvents(1.4)].map((one) => reportOf(passOver(one)))
    if (before === undefined || after === undefined) throw new Error('two runs are needed')
    return renderComparison(before, after)
  },
  different: () =>
    renderComparison(reportOf(passOver(mixedEvents())), reportOfRun(boundedRuns.straggler)),
}

const wideRun = {
  nodes: [{ nodeId: 'n1', cores: 80 }],
  tasks: Array.from({ length: 80 }, (_, at) => {
    return { uid: `t${at}`, start: 0, end: 1 + at, worker: `n1/local/w${at}` }
  }),
  end: 80,
}

/** A run that was killed: no end, and tasks that run. */
const failingEvents = () => mixedEvents().slice(0, 400)

/** Three pictures, three runs of axe-core and a PDF. */
const manyPictures = 5 * hangMs

describe('reports in a browser', () => {
  needs(chromium)('row 91: the list of tasks shows invisible characters as escapes', async () => {
    if (browser === null) throw new Error('the browser did not start')
    const tasks = [{ uid: 'a', name: '/bin/sort\u202E\u200B', start: 0, end: 1 }]
    const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 2 }
    const page = await browser.newPage()
    await page.setContent([...renderReport(reportOfRun(run))].join(''))
    const cell = page.locator('#task-rows td').nth(1)
    expect(await cell.textContent()).toBe(String.raw`sort\u202e\u200b`)
    expect(await cell.getAttribute('title')).toBe(String.raw`/bin/sort\u202e\u200b`)
    await page.close()
  })

  for (const [name, render] of Object.entries(pages)) {
    needs(chromium)(
      `report: the page "${name}" has no error and no violation of axe`,
      async () => {
        if (browser === null) throw new Error('the browser did not start')
        const seen = await look(browser, name, [...(await render())].join(''))
        expect(seen).toEqual({ problems: [], violations: [], overflow: 0, paper: [] })
        for (const kind of ['-light.png', '-dark.png', '-narrow.png', '.pdf']) {
          expect(existsSync(join(pictures, `${name}${kind}`))).toBe(true)
        }
      },
      manyPictures,
    )
  }
})
