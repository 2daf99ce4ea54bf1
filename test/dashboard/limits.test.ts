import { connect, type Socket } from 'node:net'
import { text as readAll } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'
import { eventually } from '../eventually.ts'
import { endedRecord, startTestDashboard, TestViewer } from './test-dashboard.ts'

const head = { kind: 'head', filter: {} } as const
const tasks = {
  kind: 'tasks',
  filter: {},
  q: '',
  sort: 'order',
  isDescending: false,
  offset: 0,
  limit: 500,
} as const

async function openRead(path: string): Promise<TestViewer> {
  const viewer = await TestViewer.open((await startTestDashboard(path)).url)
  await eventually(async () => expect((await viewer.head()).reading).toBeNull())
  return viewer
}

/** A request as bytes, for a client that does not read the answer. */
function requestText({ base, cookie }: TestViewer, body: unknown): string {
  const text = JSON.stringify(body)
  return (
    `POST /views HTTP/1.1\r\nHost: ${new URL(base).host}\r\nCookie: ${cookie}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
  )
}

async function openSocket({ base }: TestViewer): Promise<Socket> {
  const socket = connect(Number(new URL(base).port), '127.0.0.1')
  onTestFinished(() => void socket.destroy())
  socket.on('error', () => {})
  await new Promise((resolve) => socket.once('connect', resolve))
  return socket
}

it('row 92: a viewer that does not read costs at most 1 MiB, and others are served', async () => {
  const viewer = await openRead(endedRecord(500))
  const queries = Array.from({ length: 8 }, (_, at) => ({ id: `${at}`, query: tasks }))
  const socket = await openSocket(viewer)
  socket.pause()
  const ask = async (): Promise<number> =>
    (await viewer.post('/views', { queries, waitSeconds: 0 })).status
  // The system buffers some megabytes of a connection, so that many answers are needed.
  await eventually(async () => {
    socket.write(requestText(viewer, { queries, waitSeconds: 0 }))
    expect([await ask(), await ask(), await ask(), await ask()]).toEqual([429, 429, 429, 429])
  })
  // What still fits is sent.
  expect((await viewer.post('/views', { queries: [], waitSeconds: 0 })).status).toBe(200)
  socket.destroy()
  await eventually(async () => expect(await ask()).toBe(200))
})

it('row 92: one viewer has at most 32 waiting requests', async () => {
  const viewer = await openRead(endedRecord(1))
  const body = { queries: [], waitSeconds: 25 }
  const sockets = await Promise.all(Array.from({ length: 32 }, () => openSocket(viewer)))
  for (const socket of sockets) {
    const ask = (): boolean => socket.write(requestText(viewer, body))
    // A waiting request is answered after 25 s, which a slow machine reaches.
    socket.on('data', ask)
    ask()
  }
  await eventually(async () => {
    expect((await viewer.post('/views', { queries: [], waitSeconds: 0 })).status).toBe(429)
  })
  for (const socket of sockets) socket.destroy()
  await eventually(async () => {
    expect((await viewer.post('/views', { queries: [], waitSeconds: 0 })).status).toBe(200)
  })
})

it('row 92: 200 viewers get the same answer, also when all connect again', async () => {
  const dashboard = await startTestDashboard(endedRecord(1))
  const first = await TestViewer.open(dashboard.link())
  await eventually(async () => expect((await first.head()).reading).toBeNull())
  const viewers = await Promise.all(
    Array.from({ length: 200 }, () => TestViewer.open(dashboard.link())),
  )
  const heads = await Promise.all(viewers.map((viewer) => viewer.poll(head)))
  const versions = new Set(heads.map(({ answers }) => answers[0]?.version))
  expect(versions.size).toBe(1)
  const again = await Promise.all(viewers.map((viewer) => viewer.head()))
  expect(again.map(({ counts }) => counts.total)).toEqual(viewers.map(() => 1))
})

it('dashboard: answers that make a response too large follow in the next one', async () => {
  const viewer = await openRead(endedRecord(500))
  const queries = Array.from({ length: 32 }, (_, at) => ({ id: `${at}`, query: tasks }))
  const first = await viewer.post('/views', { queries, waitSeconds: 0 })
  const { answers } = JSON.parse(first.text) as { answers: { id: string; version: string }[] }
  expect(answers.length).toBeGreaterThan(1)
  expect(answers.length).toBeLessThan(32)
  const rest = queries.map((one) => {
    const version = answers.find(({ id }) => id === one.id)?.version
    return version === undefined ? one : { ...one, version }
  })
  const second = JSON.parse(
    (await viewer.post('/views', { queries: rest, waitSeconds: 0 })).text,
  ) as {
    answers: { id: string }[]
  }
  expect(second.answers[0]?.id).toBe(String(answers.length))
})

it('dashboard: malformed requests are refused with the wrong field', async () => {
  const viewer = await openRead(endedRecord(1))
  const one = { id: 'a', query: head }
  for (const [body, field] of [
    [{ queries: 1, waitSeconds: 0 }, 'body'],
    [{ queries: [], waitSeconds: -1 }, 'waitSeconds'],
    [{ queries: [], waitSeconds: 1e9 }, 'waitSeconds'],
    [{ queries: Array.from({ length: 33 }, () => one), waitSeconds: 0 }, 'queries'],
    [{ queries: [{ id: 'a' }], waitSeconds: 0 }, 'queries[0].query'],
    [{ queries: [{ ...one, query: { kind: 'toString' } }], waitSeconds: 0 }, 'queries[0].query'],
    [
      { queries: [{ ...one, query: { ...tasks, limit: 1e6 } }], waitSeconds: 0 },
      'queries[0].query',
    ],
    [{ queries: [{ ...one, more: 1 }], waitSeconds: 0 }, 'queries[0]'],
  ] as const) {
    const { status, text: message } = await viewer.post('/views', body)
    expect([status, message], JSON.stringify(body).slice(0, 100)).toEqual([
      400,
      expect.stringContaining(`\`${field}\``),
    ])
  }
})

it('dashboard: closing answers the waiting requests', async () => {
  const dashboard = await startTestDashboard(endedRecord(1))
  const viewer = await TestViewer.open(dashboard.url)
  await eventually(async () => expect((await viewer.head()).reading).toBeNull())
  const socket = await openSocket(viewer)
  const body = { queries: [], waitSeconds: 25 }
  const answer = readAll(socket)
  socket.write(requestText(viewer, body))
  // The server reads this after the request above.
  await viewer.head()
  await Promise.all([dashboard.close(), dashboard.close()])
  expect(await answer).toMatch(/^HTTP\/1\.1 200 OK[^]*"answers":\[\]}$/)
})
