import type { IncomingMessage } from 'node:http'
import { expect, it } from 'vitest'
import { Access, type Viewer } from '../../src/dashboard/access.ts'
import { eventually } from '../eventually.ts'
import {
  cookieOf,
  endedRecord,
  Forwarder,
  send,
  startTestDashboard,
  TestViewer,
} from './test-dashboard.ts'

it('row 93: a link works in one browser', async () => {
  const dashboard = await startTestDashboard(endedRecord(1))
  const base = new URL(dashboard.url).origin
  expect((await send(base)).status).toBe(401)
  expect((await send(`${base}/page.js`)).status).toBe(401)
  expect((await send(`${base}/?t=wrong`)).status).toBe(401)
  expect((await send(dashboard.url, { method: 'HEAD' })).status).toBe(401)
  const first = await send(dashboard.url)
  expect(first).toMatchObject({ status: 200, text: 'page' })
  expect(first.headers['set-cookie']).toEqual([
    expect.stringMatching(/^tutti-[0-9a-f]{16}=[\w-]{32}; HttpOnly; SameSite=Strict$/),
  ])
  expect(first.headers).toMatchObject({
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
    'content-security-policy': expect.stringMatching(/^default-src 'self';(?!.*unsafe)/) as string,
  })
  const headers = { cookie: cookieOf(first) }
  expect((await send(`${base}/page.js`, { headers })).text).toBe('script')
  expect((await send(dashboard.url, { headers })).status).toBe(200)
  const again = await send(dashboard.url)
  expect(again.status).toBe(401)
  expect(again.text).toContain('Each link works once')
  expect((await send(dashboard.link())).status).toBe(200)
})

it('row 93: without the cookie, a viewer gets no view, no link and no report', async () => {
  const path = endedRecord(1)
  const { url } = await startTestDashboard(path, { control: { cancel: () => true } })
  const other = await TestViewer.open((await startTestDashboard(path)).url)
  for (const cookie of ['', 'tutti-0=1', other.cookie]) {
    const stranger = new TestViewer(new URL(url).origin, cookie)
    expect((await stranger.post('/views', { queries: [], waitSeconds: 0 })).status).toBe(401)
    expect((await stranger.post('/link')).status).toBe(401)
    expect((await stranger.post('/control/cancel', { uid: 't0' })).status).toBe(401)
    expect((await stranger.get('/report')).status).toBe(401)
  }
})

it('row 93: only a browser with the link for control can cancel and retry', async () => {
  const asked: string[] = []
  const cancel = (uid: string): boolean => asked.push(uid) === 1
  const dashboard = await startTestDashboard(endedRecord(1), { control: { cancel } })
  const viewer = await TestViewer.open(dashboard.url)
  const head = { kind: 'head', filter: {} } as const
  expect((await viewer.poll(head)).rights).toEqual({ cancel: false, retry: false, report: true })
  const refused = await viewer.post('/control/cancel', { uid: 't0' })
  expect([refused.status, refused.text]).toEqual([403, expect.stringContaining('only look')])
  expect(asked).toEqual([])
  const controller = await TestViewer.open(dashboard.controlUrl ?? '')
  expect((await controller.poll(head)).rights).toMatchObject({ cancel: true, retry: false })
  const done = await controller.post('/control/cancel', { uid: 't0' })
  expect([done.status, JSON.parse(done.text), asked]).toEqual([200, { result: true }, ['t0']])
  expect((await controller.post('/control/cancel', {})).status).toBe(400)
  expect((await controller.post('/control/retry', { uid: 't0' })).status).toBe(404)
  const shared = JSON.parse((await controller.post('/link')).text) as { readonly token: string }
  const guest = await TestViewer.open(`${controller.base}/?t=${shared.token}`)
  expect((await guest.post('/control/cancel', { uid: 't1' })).status).toBe(403)
  expect(asked).toEqual(['t0'])
})

it('row 93: a browser that makes a thousand links locks out nobody who has control', () => {
  const access = new Access()
  const open = (token: string): string | undefined => access.openLink(token, null)?.[1]
  const viewerOf = (cookie: string | undefined): Viewer | null =>
    access.viewerOf({ headers: { cookie } } as IncomingMessage)
  const owner = open(access.createLink(true))
  const unopened = access.createLink(true)
  const first = open(access.createLink(false))
  for (let at = 0; at < 1000; at++) open(access.createLink(false))
  for (let at = 0; at < 1000; at++) access.createLink(false)
  expect(viewerOf(owner)?.mayControl).toBe(true)
  expect(viewerOf(first)).toBeNull()
  expect(viewerOf(open(unopened))?.mayControl).toBe(true)
})

it('row 93: a browser that looks can open the link for control as well', async () => {
  const control = { retry: () => false }
  const dashboard = await startTestDashboard(endedRecord(1), { control })
  const viewer = await TestViewer.open(dashboard.url)
  const headers = { cookie: viewer.cookie }
  const opened = await send(dashboard.controlUrl ?? '', { headers })
  expect([opened.status, opened.headers['set-cookie']]).toEqual([200, undefined])
  const done = await viewer.post('/control/retry', { uid: 't0' })
  expect(JSON.parse(done.text)).toEqual({ result: false })
})

it('row 93: foreign hosts and origins are refused', async () => {
  const dashboard = await startTestDashboard(endedRecord(1), {
    control: { cancel: () => true },
    allowHosts: ['proxy.example'],
  })
  const viewer = await TestViewer.open(dashboard.controlUrl ?? '')
  const { host } = new URL(viewer.base)
  const cancel = async (headers: Readonly<Record<string, string>>): Promise<number> =>
    (await viewer.post('/control/cancel', { uid: 't0' }, headers)).status
  expect(await cancel({})).toBe(200)
  expect(await cancel({ origin: viewer.base })).toBe(200)
  expect(await cancel({ host: 'localhost:1234', origin: 'http://localhost:1234' })).toBe(200)
  expect(await cancel({ host: '[::1]:99' })).toBe(200)
  expect(await cancel({ host: 'proxy.example', origin: 'https://proxy.example' })).toBe(200)
  expect(await cancel({ host: 'proxy.example:443', origin: 'https://proxy.example' })).toBe(200)
  for (const headers of [
    { host: 'evil.example' },
    { host: `evil.example.${host}` },
    { origin: 'http://evil.example' },
    { origin: 'null' },
    { origin: 'http://127.0.0.1:1' },
    { origin: 'http://proxy.example' },
    { host: 'localhost:1', origin: 'http://127.0.0.1:1' },
  ]) {
    expect(await cancel(headers), JSON.stringify(headers)).toBe(403)
  }
  const preflight = await send(`${viewer.base}/control/cancel`, {
    method: 'OPTIONS',
    headers: { origin: 'http://evil.example', 'access-control-request-method': 'POST' },
  })
  expect(preflight.status).toBe(403)
  expect(preflight.headers).not.toHaveProperty('access-control-allow-origin')
})

it('dashboard: the refusal of a foreign host names the option', async () => {
  const { url } = await startTestDashboard(endedRecord(1))
  const refused = await send(url, { headers: { host: 'proxy.example' } })
  expect([refused.status, refused.text]).toEqual([
    403,
    expect.stringMatching(/name the host in `allowHosts` \(--allow-host\)/),
  ])
})

it('dashboard: a forwarded port works, as with ssh -L', async () => {
  const dashboard = await startTestDashboard(endedRecord(1))
  const viewer = await TestViewer.open((await Forwarder.start()).show(dashboard))
  const body = { queries: [], waitSeconds: 0 }
  const answer = await viewer.post('/views', body, { origin: viewer.base })
  expect(viewer.base).not.toBe(new URL(dashboard.url).origin)
  expect(answer.status).toBe(200)
})

it('dashboard: after a restart, a browser needs a new link', async () => {
  const path = endedRecord(1)
  const forwarder = await Forwarder.start()
  const first = await startTestDashboard(path)
  const viewer = await TestViewer.open(forwarder.show(first))
  await first.close()
  const link = forwarder.show(await startTestDashboard(path))
  const refused = await viewer.post('/views', { queries: [], waitSeconds: 0 })
  expect([refused.status, JSON.parse(refused.text)]).toEqual([
    401,
    {
      error: { code: 'link_needed', message: expect.stringContaining('Open a new link') as string },
    },
  ])
  const again = await TestViewer.open(link)
  await eventually(async () => expect((await again.head()).counts.total).toBe(1))
})
