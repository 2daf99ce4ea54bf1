import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { expect } from 'vitest'
import type { Page } from 'playwright-core'
import { secondsText } from '../../../src/views/readable.ts'
import type { ViewsRequest } from '../../../src/dashboard/protocol.ts'
import { eventually } from '../../eventually.ts'
import { mixedEvents } from '../../report/synthetic-reports.ts'
import { needs } from '../../require.ts'
import { viewEvent } from '../../views/view-event.ts'
import {
  chromium,
  expectNoProblems,
  numberOf,
  openPage,
  rowsOf,
  textsOf,
  useBrowser,
  waitForText,
  writeEvents,
} from './open-page.ts'

useBrowser()

const events = mixedEvents(10)
const start = events[0]?.event_time ?? 0

/** The stream, once it shows attempts. Then the page below it stays where it is. */
const stream = (page: Page) => page.locator('.plot:not([data-blocks="0"])')

/** Drags over a part of the stream, from one share of its width to another. */
async function drag(page: Page, from: number, to: number): Promise<void> {
  const box = await stream(page).boundingBox()
  if (box === null) throw new Error('the stream is not visible')
  const y = box.y + box.height - 3
  await page.mouse.move(box.x + box.width * from, y)
  await page.mouse.down()
  await page.mouse.move(box.x + box.width * ((from + to) / 2), y)
  await page.mouse.move(box.x + box.width * to, y)
  await page.mouse.up()
}

const fragmentOf = async (page: Page): Promise<URLSearchParams> =>
  new URLSearchParams(((await page.evaluate('location.hash')) as string).slice(1))

needs(chromium)('a time that is selected with the pointer filters all panels', async () => {
  const opened = await openPage(writeEvents(events))
  const { page } = opened
  await drag(page, 0.1, 0.3)
  await waitForText(page, 'caption', 'In the selected time')
  const keys = await fragmentOf(page)
  const [from, to] = [Number(keys.get('from')), Number(keys.get('to'))]
  const started = events.filter(({ event_type: type }) => type === 'TaskStarted')
  const isInside = (uid: string | null): boolean => {
    const ofTask = events.filter(({ task_id: task }) => task === uid)
    const [begin, end] = ['TaskStarted', /Completed|Failed/].map(
      (type) => (ofTask.find((one) => one.event_type.match(type))?.event_time ?? 0) - start,
    )
    return (begin ?? 0) <= to && (end ?? 0) >= from
  }
  const expected = started.filter(({ task_id: uid }) => isInside(uid)).length
  await waitForText(page, 'caption', `In the selected time: ${expected} attempts`)
  await page.click('#tab-tasks')
  await waitForText(page, '.caption', `${expected} of 123 tasks`)
  const [first = []] = await rowsOf(page, 'Tasks')
  expect(first[0]).toMatch(/^(?:sim|sum)-\d+$/)
  await page.keyboard.press('Escape')
  await waitForText(page, '.caption', '123 tasks')
  expect((await fragmentOf(page)).get('from')).toBeNull()
  expectNoProblems(opened)
})

needs(chromium)('a link with a fragment shows the same panel, filters and task', async () => {
  const { page } = await openPage(
    writeEvents(events),
    '#panel=tasks&name=%2Fopt%2Fscience%2Fbin%2Fsimulate&task=sim-7&from=1&to=20&q=state%3Afailed',
  )
  await waitForText(page, '.drawer h2', 'sim-7')
  await waitForText(page, '.caption', /^[12] of 123 tasks/)
  expect(await page.inputValue('input[type=search]')).toBe('state:failed')
  expect(await textsOf(page, '.filter')).toHaveLength(2)
})

needs(chromium)('the wheel and the keys zoom, and the axis follows', async () => {
  const { page } = await openPage(writeEvents(events))
  await stream(page).hover()
  await waitForText(page, '.stream .ticks span', /\d/)
  const before = await textsOf(page, '.stream .ticks span')
  await page.mouse.wheel(0, -400)
  await page.waitForSelector('button:text("Whole run"):enabled')
  expect(await textsOf(page, '.stream .ticks span')).not.toEqual(before)
  await page.keyboard.press('=')
  await page.waitForSelector('button:text("Whole run"):disabled')
  expect(await textsOf(page, '.stream .ticks span')).toEqual(before)
  await page.keyboard.press('+')
  await page.waitForSelector('button:text("Whole run"):enabled')
})

needs(chromium)('a click on a block opens its task, with its error first', async () => {
  const { page } = await openPage(writeEvents(events.filter(({ task_id: uid }) => uid === 'sim-7')))
  const box = await stream(page).boundingBox()
  if (box === null) throw new Error('the stream is not visible')
  // All rows have the same backend, so their labels leave it out.
  expect(await textsOf(page, '.names div')).toEqual(['node-1/w7'])
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2)
  await waitForText(page, '.drawer h2', 'sim-7')
  await page.waitForSelector('.drawer h3')
  expect((await textsOf(page, '.drawer h3'))[0]).toBe('Error')
  await waitForText(page, '.drawer pre', 'bad seed 7')
})

needs(chromium)('a chosen task and the tasks that it depends on are outlined', async () => {
  const { page } = await openPage(writeEvents(events))
  await stream(page).waitFor()
  await page.evaluate(`(() => {
    window.outlines = []
    const { prototype } = CanvasRenderingContext2D
    const { clearRect, strokeRect } = prototype
    prototype.clearRect = function (...box) {
      window.outlines = []
      return clearRect.apply(this, box)
    }
    prototype.strokeRect = function (...box) {
      window.outlines.push(this.getLineDash().length > 0 ? 'dashed' : 'solid')
      return strokeRect.apply(this, box)
    }
  })()`)
  await page.evaluate(`location.hash = '#task=sum-39'`)
  await waitForText(page, '.drawer h2', 'sum-39')
  await eventually(async () => {
    const outlines = (await page.evaluate('window.outlines')) as string[]
    expect(outlines.filter((kind) => kind === 'solid')).toHaveLength(1)
    expect(outlines.filter((kind) => kind === 'dashed').length).toBeGreaterThanOrEqual(40)
  })
  // The drawer links to each of them.
  await page.click('.drawer button.link:text-is("sim-3")')
  await waitForText(page, '.drawer h2', 'sim-3')
  await page.click('.drawer button.link:text-is("sum-39")')
  await waitForText(page, '.drawer h2', 'sum-39')
})

needs(chromium)('a stream that has no width for a moment keeps its detail', async () => {
  const { page } = await openPage(writeEvents(events))
  await stream(page).waitFor()
  const asked: number[] = []
  page.on('request', (request) => {
    if (!request.url().endsWith('/views')) return
    const { queries } = request.postDataJSON() as ViewsRequest
    for (const { query } of queries) if (query.kind === 'stream') asked.push(query.cells)
  })
  for (const display of ['none', '']) {
    await page.evaluate(`document.body.style.display = '${display}'`)
    // An observer of sizes calls back before the second frame.
    await page.evaluate('new Promise((done) => requestAnimationFrame(() => setTimeout(done)))')
  }
  await page.setViewportSize({ width: 700, height: 900 })
  await eventually(() => expect(asked.at(-1)).toBe(500))
  expect(asked).not.toContain(0)
})

needs(chromium)('a time in which nothing ran is folded, and a click unfolds it', async () => {
  const lateTasks = new Set(['sum-39', 'sum-79', 'sum-119'])
  const later = events.map((event) => {
    const isLate =
      event.task_id === null ? event.event_time > start + 90 : lateTasks.has(event.task_id)
    return isLate ? { ...event, event_time: event.event_time + 1000 } : event
  })
  const { page } = await openPage(writeEvents(later))
  await page.waitForSelector('.fold')
  const folds = await page.locator('.fold').count()
  await page.locator('.fold').first().click()
  await eventually(async () => expect(await page.locator('.fold').count()).toBe(folds - 1))
})

/** The labels of the time axis that the marks of folded times cover. */
const overlaps = `(() => {
  const marks = [...document.querySelectorAll('.fold')].map((one) => one.getBoundingClientRect())
  return [...document.querySelectorAll('.ticks > span')]
    .filter((label) => {
      const { left, right } = label.getBoundingClientRect()
      return marks.some((mark) => mark.left < right && left < mark.right)
    })
    .map((label) => label.textContent)
})()`

needs(chromium)('the mark of a time folded at the beginning covers no label', async () => {
  const later = events.map((event) =>
    event.event_type === 'SessionStarted' ? event : { ...event, event_time: event.event_time + 95 },
  )
  const { page } = await openPage(writeEvents(later))
  await page.waitForSelector('.fold')
  expect(await page.locator('.ticks > span').count()).toBeGreaterThan(0)
  expect(await page.evaluate(overlaps)).toEqual([])
})

needs(chromium)('replay shows the run as it was at an earlier time', async () => {
  const opened = await openPage(writeEvents(events), '#t=20')
  const { page } = opened
  const done = events.filter(
    ({ event_type: type, event_time: time }) => type === 'TaskCompleted' && time <= start + 20,
  ).length
  await waitForText(page, '.state', 'replay')
  await waitForText(page, '.numbers dd', new RegExp(`^${done} / `))
  expect(Number(await numberOf(page, 'running'))).toBeGreaterThan(0)
  await page.locator('.replay input').focus()
  await page.keyboard.press('End')
  await waitForText(page, '.numbers dd', /^119 \/ /)
  await page.keyboard.press('Escape')
  await page.click('button:text("Replay")')
  await waitForText(page, '.state', 'ended')
  expectNoProblems(opened)
})

needs(chromium)('a replay that is opened before its record is there shows that time', async () => {
  const path = writeEvents(events)
  const text = readFileSync(path, 'utf8')
  rmSync(path)
  const { page } = await openPage(path, '#t=20')
  await waitForText(page, '.notice', 'does not exist yet')
  writeFileSync(path, text)
  const end = secondsText((events.at(-1)?.event_time ?? 0) - start)
  await waitForText(page, '.replay output', `20.0 s of ${end}`)
  const done = events.filter(
    ({ event_type: type, event_time: time }) => type === 'TaskCompleted' && time <= start + 20,
  ).length
  await waitForText(page, '.numbers dd', new RegExp(`^${done} / `))
})

needs(chromium)('a selection grows by keys alone, and tabs change by arrows', async () => {
  const { page } = await openPage(writeEvents(events))
  await stream(page).focus()
  for (let step = 0; step < 4; step++) await page.keyboard.press('Shift+ArrowRight')
  await waitForText(page, 'caption', 'In the selected time')
  await page.keyboard.press('3')
  await page.waitForSelector('[data-panel=tasks]')
  await page.locator('#tab-tasks').focus()
  await page.keyboard.press('ArrowRight')
  await page.waitForSelector('[data-panel=resources]')
  await page.keyboard.press('/')
  await page.waitForSelector('input[type=search]:focus')
  await page.keyboard.type('state:failed')
  // The rows of the last letter. Those of the letters before it may go away.
  await page.waitForSelector('[data-panel=tasks] [aria-busy=false]')
  await waitForText(page, '.caption', /of 123 tasks/)
  await page.locator('[aria-label=Tasks] button.link').first().focus()
  await page.keyboard.press('Enter')
  await page.waitForSelector('.drawer h2:focus')
  await page.keyboard.press('Escape')
  await page.waitForSelector('.drawer', { state: 'detached' })
})

const hostile = [
  '<img src=x onerror=alert(1)>',
  '</script><script>alert(1)</script>',
  'a\u202Eb\u0007',
]

needs(chromium)(
  'row 91: hostile names are text, with invisible characters as escapes',
  async () => {
    const lives = [...hostile, 'x'.repeat(200_000)].flatMap((name, at) =>
      ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskFailed'].map(
        (type, step) =>
          viewEvent(type, `${name.slice(0, 1000)} ${at}`, {
            event_time: 100 + at + step / 10,
            attributes: { executable: name, worker_id: name, error_message: name },
            duration_seconds: 1,
            error_type: 'Error',
          }),
      ),
    )
    const opened = await openPage(writeEvents([viewEvent('SessionStarted'), ...lives]))
    const { page } = opened
    for (const panel of [
      'progress',
      'tasks',
      'failures',
      'workers',
      'events',
      'health',
      'stream',
    ]) {
      await page.click(`#tab-${panel}`)
      await page.waitForSelector(`[data-panel=${panel}]`)
      const text = await eventually(async () => {
        const shown = await page.locator('body').innerText()
        expect(shown).not.toContain('Waiting for the server')
        return shown
      })
      for (const hidden of ['\u202E', '\u0007']) expect(text).not.toContain(hidden)
      expect(text.length).toBeLessThan(40_000)
      expect(await page.locator('img, .panel script').count()).toBe(0)
    }
    await page.click('#tab-tasks')
    await waitForText(page, '[aria-label=Tasks] td', String.raw`a\u202eb\u0007`)
    expectNoProblems(opened)
  },
)
