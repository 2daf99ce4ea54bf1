import { expect, it } from 'vitest'
import type { ViewQuery } from '../../src/dashboard/protocol.ts'
import type { ViewSource } from '../../src/dashboard/sources/view-source.ts'
import { ViewPolls } from '../../src/dashboard/view-polls.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

interface Asked {
  readonly query: ViewQuery
  readonly signal: AbortSignal
  readonly resolve: (text: string) => void
}

function openPolls() {
  const asked: Asked[] = []
  const source: ViewSource = {
    hasReport: false,
    refresh: () => Promise.resolve('1'),
    answer: (query, signal) =>
      new Promise((resolve) => {
        asked.push({ query, signal, resolve })
      }),
    report: () => expect.fail('no report'),
    close: () => Promise.resolve(),
  }
  const polls = new ViewPolls(source, new ManualClock())
  const poll = (signal: AbortSignal, ...kinds: readonly ('health' | 'records')[]) => {
    const queries = kinds.map((kind) => ({ id: kind, query: { kind } as const }))
    return polls.poll({ queries, waitSeconds: 0 }, signal)
  }
  return { asked, poll }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

it('an answer is no longer computed once the last viewer that needs it has left', async () => {
  const { asked, poll } = openPolls()
  const viewers = [new AbortController(), new AbortController()] as const
  const answers = viewers.map(({ signal }) => poll(signal, 'health', 'records'))
  await turn()
  expect(asked.map(({ query, signal }) => [query.kind, signal.aborted])).toEqual([
    ['health', false],
  ])
  viewers[0].abort()
  expect(await answers[0]).toEqual([])
  expect(asked[0]?.signal.aborted).toBe(false)
  viewers[1].abort()
  expect(await answers[1]).toEqual([])
  expect(asked[0]?.signal.aborted).toBe(true)
  // The queries after the one that was left were not asked.
  expect(asked).toHaveLength(1)
})

it('an answer that was given up is computed again for the next viewer', async () => {
  const { asked, poll } = openPolls()
  const leaving = new AbortController()
  const left = poll(leaving.signal, 'health')
  await turn()
  leaving.abort()
  await left
  const next = poll(new AbortController().signal, 'health')
  await turn()
  asked[1]?.resolve('{"facts":[]}')
  expect(await next).toEqual([expect.stringContaining('"view":{"facts":[]}')])
})
