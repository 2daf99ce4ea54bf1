import { expect, it } from 'vitest'
import { decode } from '../../../src/cluster/wire/codec.ts'
import { encodeReferences } from '../../../src/cluster/wire/job-batches.ts'
import type { JobReference } from '../../../src/cluster/wire/messages.ts'

const references = (count: number): JobReference[] =>
  Array.from({ length: count }, (_, index) => [`task-${index}`.padEnd(100, 'x'), 1])

it('messages that name jobs are cut by bytes and by count, and keep their order', () => {
  for (const [count, limitBytes] of [
    [0, 1000],
    [1, 10],
    [50, 1000],
    [12_000, 10_000_000],
  ] as const) {
    const jobs = references(count)
    const payloads = encodeReferences({ kind: 'recall', jobs }, limitBytes)
    const messages = payloads.map((payload) => decode(payload) as { jobs: JobReference[] })
    expect(messages.flatMap((message) => message.jobs)).toEqual(jobs)
    const isCut = messages.every(
      (message, at) =>
        message.jobs.length === 1 ||
        ((payloads[at]?.length ?? 0) <= limitBytes && message.jobs.length <= 5000),
    )
    expect([count, isCut]).toEqual([count, true])
  }
})
