import { expect } from 'vitest'
import { hangMs } from '../../long-run.ts'
import { secondsText } from '../../../src/views/readable.ts'
import { createOverview, describeRun } from '../../../src/views/texts/run-overview.ts'
import { names } from '../../../src/views/panels/names.ts'
import { eachTask } from '../../../src/views/tasks.ts'
import { eventually } from '../../eventually.ts'
import { colorRules, overflowOf, violationsOf } from '../../report/browser.ts'
import { mixedEvents } from '../../report/synthetic-reports.ts'
import { needs } from '../../require.ts'
import { eventsOf, passOver } from '../../views/synthetic-run.ts'
import { exampleEvents } from './example-run.ts'
import {
  chromium,
  expectNoProblems,
  numberOf,
  openPage,
  rowsOf,
  showPanel,
  takePicture,
  textsOf,
  useBrowser,
  waitForText,
  writeEvents,
} from './open-page.ts'

useBrowser()

const events = mixedEvents(10)
const overview = createOverview(passOver(events), 'ended', events.at(-1)?.event_time ?? 0)
const path = (): string => writeEvents(events)

/** Ten panels, each in light, dark and narrow. */
const manyPictures = 5 * hangMs

needs(chromium)('the header shows the counts, the length and the verdict of the run', async () => {
  const opened = await openPage(path())
  const { page } = opened
  const { counts } = overview
  await waitForText(page, '.numbers dd', `${counts.completed} / ${counts.tasks}`)
  expect(await numberOf(page, 'failed')).toBe(String(counts.failed))
  expect(await numberOf(page, 'elapsed')).toBe(secondsText(overview.durationSeconds))
  expect(await textsOf(page, '.verdict .lead')).toEqual([describeRun(overview).sentence])
  await waitForText(page, '.state', 'ended')
  expectNoProblems(opened)
})

needs(chromium)('the panels show the numbers of the run itself', async () => {
  const opened = await openPage(path(), '#panel=progress')
  const { page } = opened
  const rows = await rowsOf(page, 'Tasks by name')
  const expected = names.show(passOver(events).states.names, { durations: false })
  expect(rows.map(([name, , done, failed, , , total]) => [name, done, failed, total])).toEqual(
    expected.map(({ name, total, completed, failed }) => [
      name.split('/').at(-1),
      String(completed),
      String(failed),
      String(total),
    ]),
  )
  await showPanel(page, 'tasks')
  await waitForText(page, '.caption', `${overview.counts.tasks} tasks`)
  await showPanel(page, 'failures')
  await waitForText(page, '.groups h3', `${overview.counts.failed} × RangeError`)
  await showPanel(page, 'workers')
  const nodes = await rowsOf(page, 'Nodes')
  expect(nodes.map(([node, , , , cores]) => [node, cores])).toEqual([['node-1', '8']])
  const [[, loss, about, reason] = []] = await rowsOf(page, 'Warnings')
  expect([loss, about, reason]).toEqual(['tutti.WorkerLost', 'node-1/local/w3', 'ended by SIGKILL'])
  await showPanel(page, 'resources')
  await waitForText(page, '.chart-label', /CPU \d+ %/)
  await showPanel(page, 'inference')
  await waitForText(page, '[data-panel=inference] p', '15 batches')
  await showPanel(page, 'graph')
  await waitForText(page, '[data-panel=graph] p', 'Each box is a task')
  expect(await page.locator('.box').count()).toBe(overview.counts.tasks)
  await showPanel(page, 'events')
  const [latest = []] = await rowsOf(page, 'Events, newest first')
  expect(latest[1]).toBe('SessionEnded')
  // Events of a long run differ by milliseconds.
  expect(latest[0]).toMatch(/^\d m \d\d\.\d{3} s$/)
  await showPanel(page, 'health')
  await waitForText(page, '.facts dt', /./)
  expectNoProblems(opened)
})

/** The lines of the graph that lead through a box, by the middle of their path. */
const crossedBoxes = `(() => {
  const boxes = [...document.querySelectorAll('.graph .box rect:first-child')]
  return [...document.querySelectorAll('.graph .edge')].filter((line) => {
    const { x, y } = line.getPointAtLength(line.getTotalLength() / 2)
    const place = new DOMPoint(x, y).matrixTransform(line.getScreenCTM())
    return boxes.some((box) => {
      const { left, right, top, bottom } = box.getBoundingClientRect()
      return place.x > left && place.x < right && place.y > top && place.y < bottom
    })
  }).length
})()`

needs(chromium)('lines between names that depend on each other are beside the boxes', async () => {
  const tasks = Array.from({ length: 300 }, (_, at) => ({
    uid: `t${at}`,
    name: ['first', 'second', 'third', 'fourth'][at % 4] ?? '',
    dependencies: at < 4 ? [] : [`t${at - 1 - (at % 2)}`],
    ready: at,
    start: at,
    end: at + 1,
  }))
  const nodes = [{ nodeId: 'n1', cores: 4 }]
  const opened = await openPage(writeEvents(eventsOf({ nodes, tasks, end: 301 })), '#panel=graph')
  const { page } = opened
  await waitForText(page, '[data-panel=graph] p', 'Each box is a name')
  expect(await page.locator('.graph .edge').count()).toBeGreaterThan(3)
  expect(await page.evaluate(crossedBoxes)).toBe(0)
  expectNoProblems(opened)
})

needs(chromium)('the chosen tab stays visible when the page becomes narrow', async () => {
  const { page } = await openPage(path(), '#panel=health')
  await page.setViewportSize({ width: 360, height: 900 })
  await eventually(async () => {
    const box = await page.locator('#tab-health').boundingBox()
    expect((box?.x ?? Infinity) + (box?.width ?? 0)).toBeLessThanOrEqual(360)
  })
  expect(await overflowOf(page)).toBe(0)
})

needs(chromium)('a click on a heading sorts tasks, a second one reverses the order', async () => {
  const { page } = await openPage(path(), '#panel=tasks&q=state%3Adone')
  const sorted = async (): Promise<string[]> =>
    (await rowsOf(page, 'Tasks')).map(([uid = '']) => uid)
  const pass = passOver(events)
  const ended = [...eachTask(pass)].filter(({ state }) => state === 'DONE')
  for (const column of ['waited', 'ran'] as const) {
    const longest = Math.max(...ended.map((task) => task[column] ?? 0))
    const shortest = Math.min(...ended.map((task) => task[column] ?? 0))
    for (const expected of [longest, shortest]) {
      await page.click(`[aria-label=Tasks] th button:text-matches("^${column}")`)
      await eventually(async () => {
        const [first] = await sorted()
        expect(ended.find(({ uid }) => uid === first)?.[column]).toBe(expected)
      })
    }
  }
})

needs(chromium)('the examples of the first failures are open, those of others closed', async () => {
  const kinds = 'one two three four five six seven'.split(' ')
  const failed = kinds.map((name, at) => ({ uid: name, name, start: at, end: at + 1 }))
  const tasks = failed.map((task) => ({ ...task, endType: 'TaskFailed' as const }))
  const { page } = await openPage(
    writeEvents(eventsOf({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 9 })),
    '#panel=failures',
  )
  await page.waitForSelector('.groups > li')
  expect(await page.locator('.groups > li').count()).toBe(7)
  expect(await page.locator('.groups details[open]').count()).toBe(5)
})

const panels =
  'stream progress tasks resources failures workers inference graph events health'.split(' ')

needs(chromium)(
  'each panel has no violation of axe and fits, in light, dark and narrow',
  async () => {
    const opened = await openPage(path())
    const { page } = opened
    const violations: string[] = []
    for (const panel of panels) {
      await showPanel(page, panel)
      for (const [kind, width, colorScheme] of [
        ['light', 1280, 'light'],
        ['dark', 1280, 'dark'],
        ['narrow', 360, 'light'],
      ] as const) {
        await page.emulateMedia({ colorScheme })
        await page.setViewportSize({ width, height: 900 })
        const rules = kind === 'dark' ? colorRules : null
        const found = await violationsOf(page, rules)
        violations.push(...found.map((one) => `${panel}, ${kind}: ${one}`))
        if ((await overflowOf(page)) > 0) violations.push(`${panel}, ${kind}: too wide`)
        await takePicture(page, `${panel}-${kind}`)
      }
      await page.emulateMedia({ colorScheme: 'light' })
      await page.setViewportSize({ width: 1280, height: 900 })
    }
    await page.goto(`${page.url().split('#')[0]}#task=sim-7`)
    await waitForText(page, '.drawer', 'RangeError')
    violations.push(...(await violationsOf(page, null)))
    await takePicture(page, 'drawer-light')
    await page.keyboard.press('Escape')
    await page.keyboard.press('?')
    await page.waitForSelector('dialog[open]')
    violations.push(...(await violationsOf(page, null)))
    expect(violations).toEqual([])
    expectNoProblems(opened)
  },
  manyPictures,
)

needs(chromium)('the pictures of the guide show a run with failures', async () => {
  const opened = await openPage(writeEvents(exampleEvents()))
  const { page } = opened
  await page.setViewportSize({ width: 1200, height: 700 })
  await page.waitForSelector('.plot:not([data-blocks="0"])')
  await rowsOf(page, 'Tasks by name')
  await takePicture(page, 'guide-progress')
  await page.click('#tab-resources')
  await waitForText(page, '.chart-label', /CPU/)
  await page.emulateMedia({ colorScheme: 'dark' })
  await takePicture(page, 'guide-resources')
  await page.emulateMedia({ colorScheme: 'light' })
  await page.goto(`${page.url().split('#')[0]}#panel=failures&from=20&to=40`)
  await waitForText(page, '.groups h3', 'RangeError')
  await waitForText(page, 'caption', 'In the selected time')
  await takePicture(page, 'guide-selection')
  await page.goto(`${page.url().split('#')[0]}#panel=tasks&q=state%3Afailed&task=task-87`)
  await waitForText(page, '.drawer pre', 'the mesh has no volume')
  await waitForText(page, '.caption', /of 420 tasks/)
  await takePicture(page, 'guide-task')
  expectNoProblems(opened)
})
