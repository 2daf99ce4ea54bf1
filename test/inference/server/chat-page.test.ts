/** The chat page in a real browser, and its response. Needs the build. */

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setTimeout as wait } from 'node:timers/promises'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { chromium, waitForText } from '../../dashboard/web/open-page.ts'
import { eventually } from '../../eventually.ts'
import { colorRules, openBrowser, overflowOf, violationsOf } from '../../report/browser.ts'
import { needs } from '../../require.ts'
import { FakeGenerator, type Script } from './fake-generator.ts'
import { ask, serve } from './served.ts'

const pageFile = fileURLToPath(
  new URL('../../../dist/inference/server/chat-page.html', import.meta.url),
)
/** Ignored by git; a person looks at what is in it. */
const pictures = fileURLToPath(new URL('../../../.cache/chat-pictures/', import.meta.url))

let browser: Browser | null = null

beforeAll(async () => {
  if (chromium.isMet) browser = await openBrowser()
})
afterAll(async () => await browser?.close())

/** Reasons, then answers with code and markup. */
const explain: Script = async (_, tell) => {
  const words = ['The loop:\n', '```ts\nfor (const x of xs) sum += x\n```\n', '<b>done</b>']
  const message = { reasoning_content: 'A sum is wanted.' }
  await tell.delta?.({ text: '', fields: { message } })
  for (const text of words) {
    await tell.delta?.({ text })
    // The rate is shown only if the answer takes a measurable time.
    await wait(20)
  }
  return { text: words.join(''), usage: { promptTokens: 9, completionTokens: 21 } }
}

interface OpenPage {
  readonly page: Page
  readonly generator: FakeGenerator
  /** Errors of the console, exceptions, and requests to other hosts. */
  readonly problems: readonly string[]
}

async function openPage(
  script?: Script,
  options: Parameters<typeof serve>[0] = {},
): Promise<OpenPage> {
  if (browser === null) throw new Error('the browser did not start')
  const generator = new FakeGenerator(script)
  const served = await serve({ generator, pageFile, ...options })
  onTestFinished(() => served.server.stop())
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } })
  context.setDefaultTimeout(0)
  onTestFinished(() => context.close())
  const page = await context.newPage()
  const problems: string[] = []
  page.on('console', (message) => {
    // A browser reports each response that is an error.
    const isExpected = message.text().startsWith('Failed to load resource')
    if (message.type() === 'error' && !isExpected) problems.push(message.text())
  })
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('request', (request) => {
    if (!request.url().startsWith(served.url)) problems.push(`asked for ${request.url()}`)
  })
  await page.goto(`${served.url}/`)
  return { page, generator, problems }
}

async function say(page: Page, text: string): Promise<void> {
  await page.fill('[aria-label=Message]', text)
  await page.click('button:text("Send"):enabled')
}

const endOfAnswer = (page: Page): Promise<void> =>
  waitForText(page, 'article footer', 'first after')

needs(chromium)('an answer is streamed, with its reasoning, code and numbers', async () => {
  const { page, generator, problems } = await openPage(explain)
  await page.click('summary:text("Settings")')
  await page.fill('label:has-text("System prompt") textarea', 'Be brief.')
  await page.fill('label:has-text("Temperature") input', '0.2')
  await page.fill('label:has-text("Maximum tokens") input', '50')
  await say(page, 'How do I add numbers?')
  await endOfAnswer(page)
  expect(await page.locator('.assistant .text pre').textContent()).toBe(
    'for (const x of xs) sum += x\n',
  )
  expect(await page.locator('.assistant .text p').allTextContents()).toEqual([
    'The loop:',
    '<b>done</b>',
  ])
  expect(await page.locator('.assistant .reasoning p').textContent()).toBe('A sum is wanted.')
  expect(await page.locator('article footer').textContent()).toMatch(
    /^21 tokens · [\d.]+ tokens\/s · first after \d/,
  )
  await say(page, 'Thanks.')
  await page.locator('.assistant').nth(1).locator('footer').waitFor()
  const [, second] = generator.requests
  expect(second).toMatchObject({
    input: {
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'How do I add numbers?' },
        { role: 'assistant' },
        { role: 'user', content: 'Thanks.' },
      ],
    },
    sampling: { temperature: 0.2, maxTokens: 50 },
  })
  expect(problems).toEqual([])
})

needs(chromium)('Stop ends the request, and Again repeats it', async () => {
  const aborted = Promise.withResolvers<void>()
  let isFirst = true
  const { page, generator, problems } = await openPage(async ({ signal }, tell) => {
    await tell.delta?.({ text: 'one ' })
    if (isFirst) {
      isFirst = false
      const { promise, reject } = Promise.withResolvers<void>()
      signal?.addEventListener('abort', () => {
        aborted.resolve()
        reject(signal.reason)
      })
      await promise
    }
    await tell.delta?.({ text: 'two' })
    return { text: 'one two' }
  })
  await say(page, 'Count.')
  await waitForText(page, '.assistant .text', 'one')
  await page.keyboard.press('Escape')
  await aborted.promise
  await waitForText(page, 'article footer', 'stopped')
  await page.click('button:text("Again")')
  await waitForText(page, '.assistant .text', 'one two')
  await endOfAnswer(page)
  expect(await page.locator('article').count()).toBe(2)
  expect(generator.requests.length).toBe(2)
  await page.click('button:text("New chat")')
  expect(await page.locator('article').count()).toBe(0)
  expect(problems).toEqual([])
})

needs(chromium)('an answer keeps the name of its model when another one is chosen', async () => {
  const { page, generator } = await openPage(explain, { models: ['tiny', 'other'] })
  await say(page, 'hello')
  await endOfAnswer(page)
  await page.selectOption('select', 'other')
  await say(page, 'hello again')
  await page.locator('.assistant').nth(1).locator('footer').waitFor()
  const names = await page.locator('article h2').allTextContents()
  expect(names).toEqual(['You', 'tiny', 'You', 'other'])
  expect(generator.requests.length).toBe(2)
})

needs(chromium)('the page asks for a key, and keeps it in the tab', async () => {
  const { page, generator, problems } = await openPage(explain, { apiKey: 'open sesame' })
  await page.fill('input[name=key]', 'wrong')
  await page.click('button:text("Use this key")')
  await waitForText(page, '[role=alert]', 'The API key is wrong')
  expect(await violationsOf(page, null)).toEqual([])
  await page.fill('input[name=key]', 'open sesame')
  await page.click('button:text("Use this key")')
  await page.locator('input[name=key]').waitFor({ state: 'detached' })
  await page.reload()
  await say(page, 'hello')
  await endOfAnswer(page)
  expect(generator.requests.length).toBe(1)
  const stored = await page.evaluate('[...Object.values(sessionStorage), localStorage.length]')
  expect(stored).toEqual(['open sesame', 0])
  expect(problems).toEqual([])
})

needs(chromium)('the page shows an error of the server, and tries again', async () => {
  let isBroken = true
  const { page } = await openPage(async (...parts) => {
    if (isBroken) throw new Error('the engine broke')
    return explain(...parts)
  })
  await say(page, 'hello')
  await waitForText(page, '[role=alert]', /\w/)
  expect(await page.locator('article footer').textContent()).toBe('failed')
  expect(await violationsOf(page, null)).toEqual([])
  isBroken = false
  await page.click('button:text("Try again")')
  await waitForText(page, 'article footer', '21 tokens')
  expect(await page.locator('[role=alert]').count()).toBe(0)
})

needs(chromium)('the page follows the end of the conversation', async () => {
  const { page } = await openPage(explain)
  await page.setViewportSize({ width: 800, height: 420 })
  const restOf = (): Promise<unknown> =>
    page.evaluate('document.documentElement.scrollHeight - innerHeight - scrollY')
  for (let at = 1; at <= 5; at++) {
    await say(page, `question ${at}`)
    await page
      .locator('.assistant')
      .nth(at - 1)
      .locator('footer')
      .waitFor()
    await eventually(async () => expect(await restOf()).toBeLessThan(2))
  }
  // A reader who has scrolled up is taken along by a new question alone.
  await page.evaluate('scrollTo(0, 0)')
  await say(page, 'another question')
  await page.locator('.assistant').nth(5).locator('footer').waitFor()
  await eventually(async () => expect(await restOf()).toBeLessThan(2))
})

needs(chromium)('the page waits for a model that is loading', async () => {
  if (browser === null) throw new Error('the browser did not start')
  await using served = await serve({ pageFile, contextLength: null })
  const page = await browser.newPage()
  onTestFinished(() => page.close())
  await page.goto(`${served.url}/`)
  await waitForText(page, 'main', 'Waiting for the model')
  served.server.modelLoaded({ contextLength: 8192, fields: [] })
  await waitForText(page, 'main', 'Write a message')
  expect(await page.locator('select').inputValue()).toBe('tiny')
})

needs(chromium)(
  'the page has no violation of axe and fits, in light, dark and narrow',
  async () => {
    const { page, problems } = await openPage(explain)
    mkdirSync(pictures, { recursive: true })
    await page.click('summary:text("Settings")')
    await say(page, 'How do I add numbers? '.repeat(12))
    await endOfAnswer(page)
    const found: string[] = []
    for (const [kind, width, colorScheme] of [
      ['light', 1280, 'light'],
      ['dark', 1280, 'dark'],
      ['narrow', 360, 'light'],
    ] as const) {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize({ width, height: 900 })
      found.push(...(await violationsOf(page, kind === 'dark' ? colorRules : null)))
      expect(await overflowOf(page)).toBe(0)
      await page.screenshot({ path: join(pictures, `${kind}.png`) })
    }
    expect(found).toEqual([])
    expect(problems).toEqual([])
  },
)

it('the page is public below the base path, and allows no script but its own', async () => {
  await using served = await serve({ pageFile, apiKey: 'key', basePath: '/llm' })
  const reply = await ask(`${served.url}/`)
  expect(reply.status).toBe(200)
  expect(reply.headers.get('content-type')).toBe('text/html; charset=utf-8')
  const policy = reply.headers.get('content-security-policy') ?? ''
  expect(policy).toMatch(/script-src 'sha256-[\w+/]{43}='; style-src 'sha256-[\w+/]{43}=';/)
  expect(policy).not.toContain('unsafe')
  expect(reply.text).not.toMatch(/(?:src|href)="(?!data:)/)
})

it('a server without the page has nothing at its address', async () => {
  await using served = await serve()
  expect((await ask(`${served.url}/`)).status).toBe(404)
})
