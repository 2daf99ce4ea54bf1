import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Connection, Job } from '../../src/backends/backend.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { quick, turns } from '../session/open-session.ts'

/** A backend that lists, in order, its batches of recorded jobs, its release and its close. */
class ListingBackend extends FakeBackend {
  readonly calls: (readonly string[] | 'release' | 'close')[] = []
  onSubmit: (job: Job) => void = () => {}
  onRecorded: (jobs: readonly Job[]) => unknown = () => {}

  override close(): Promise<void> {
    this.calls.push('close')
    return super.close()
  }

  override connect(...args: Parameters<FakeBackend['connect']>) {
    const connection = super.connect(...args)
    return {
      ...connection,
      submit: (jobs: readonly Job[]) => {
        connection.submit(jobs)
        for (const job of jobs) this.onSubmit(job)
      },
      recorded: (jobs: readonly Job[]) => {
        this.calls.push(jobs.map(({ uid, attempt }) => `${uid}/${attempt}`))
        return this.onRecorded(jobs) as undefined
      },
      release: (reason: string) => {
        this.calls.push('release')
        return connection.release(reason)
      },
    }
  }
}

async function open(options: { readonly hasCheckpoint?: boolean } = {}) {
  const backend = new ListingBackend({ name: 'remote' })
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const session = new Session([backend], { log })
  onTestFinished(() => session.close())
  if (options.hasCheckpoint !== true)
    return { backend, session, warnings, telemetry: null, flush: null, file: '' }
  const folder = mkdtempSync(join(tmpdir(), 'tutti-ends-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const flush = vi.spyOn(telemetry, 'flush')
  return { backend, session, warnings, telemetry, flush, file: telemetry.checkpointFile ?? '' }
}

describe('Connection.recorded', () => {
  it('recorded: without telemetry, the ends of one turn are one batch in the next', async () => {
    const { backend, session } = await open()
    const [one, two, three] = [quick(), quick(), quick()]
    await session.submitTasks([one, two, three])
    backend.start(one)
    backend.complete(one)
    backend.fail(two, new Error('no'))
    expect(backend.calls).toEqual([])
    await turns(2)
    expect(backend.calls).toEqual([[`${one.uid}/1`, `${two.uid}/1`]])
    backend.report(backend.jobOf(three), { kind: 'cancel', reason: 'x' })
    await turns(2)
    expect(backend.calls.slice(1)).toEqual([[`${three.uid}/1`]])
  })

  it('recorded: the checkpoint has the ends before the backend may forget them', async () => {
    const { backend, session, flush, file } = await open({ hasCheckpoint: true })
    const tasks = Array.from({ length: 100 }, () => quick())
    await session.submitTasks(tasks)
    let isOnFile = false
    backend.onRecorded = (jobs) => {
      const lines = readFileSync(file, 'utf8').split('\n')
      const ends = lines.filter((line) => line.includes('"TaskCompleted"'))
      isOnFile = jobs.every(({ uid }) => ends.some((line) => line.includes(`"${uid}"`)))
    }
    for (const task of tasks) backend.complete(task)
    while (backend.calls.length < 1) await turns(1)
    expect([isOnFile, backend.calls[0]?.length]).toEqual([true, 100])
    expect(flush).toHaveBeenCalledTimes(1)
  })

  it('recorded: ends that come during a flush wait for a flush of their own', async () => {
    const { backend, session, flush } = await open({ hasCheckpoint: true })
    const [one, two, three] = [quick(), quick(), quick()]
    await session.submitTasks([one, two, three])
    const { promise, resolve } = Promise.withResolvers<void>()
    flush?.mockImplementationOnce(() => promise)
    backend.complete(one)
    await turns(2)
    backend.complete(two)
    backend.complete(three)
    await turns(5)
    expect([backend.calls, flush?.mock.calls.length]).toEqual([[], 1])
    expect(await Promise.all([two, three])).toEqual([undefined, undefined])
    resolve()
    while (backend.calls.length < 2) await turns(1)
    expect(backend.calls).toEqual([[`${one.uid}/1`], [`${two.uid}/1`, `${three.uid}/1`]])
    expect(flush).toHaveBeenCalledTimes(2)
  })

  it('recorded: a retried attempt is recorded like any other, a late report never', async () => {
    const { backend, session } = await open()
    const task = quick({ retries: 1 })
    await session.submitTasks([task])
    const first = backend.jobOf(task)
    backend.fail(task, new Error('once'))
    await turns(2)
    expect(backend.calls).toEqual([[`${task.uid}/1`]])
    backend.report(first, { kind: 'complete', value: 'late' })
    backend.complete(task)
    await turns(2)
    expect(backend.calls.slice(1)).toEqual([[`${task.uid}/2`]])
  })

  it('recorded: close() delivers what has ended before it releases the connection', async () => {
    const { backend, session, warnings } = await open({ hasCheckpoint: true })
    const [done, open_] = [quick(), quick()]
    await session.submitTasks([done, open_])
    backend.complete(done)
    await session.close()
    const ends = [[`${done.uid}/1`], 'release', [`${open_.uid}/1`], 'close']
    expect([open_.state, backend.calls, warnings]).toEqual(['CANCELED', ends, []])
    await turns(5)
    expect(backend.calls).toEqual(ends)
  })

  it('recorded: what close() cancels is delivered before the backend is closed', async () => {
    const { backend, session } = await open()
    const task = quick()
    await session.submitTasks([task])
    await session.close()
    await turns(5)
    expect(backend.calls).toEqual(['release', [`${task.uid}/1`], 'close'])
  })

  it('recorded: attempts are named in the order of their ends', async () => {
    const { backend, session } = await open()
    const task = quick({ retries: 2 })
    backend.onSubmit = (job) => backend.report(job, { kind: 'fail', error: new Error('no') })
    await session.submitTasks([task])
    await session.waitTasks([task])
    await turns(2)
    expect(backend.calls.flat()).toEqual([1, 2, 3].map((attempt) => `${task.uid}/${attempt}`))
  })

  it.each([
    [
      'throws',
      () => {
        throw new Error('broken')
      },
    ],
    ['rejects', () => Promise.reject(new Error('broken'))],
  ])(
    'recorded: a backend that %s causes a warning, and later ends are delivered',
    async (_, fail) => {
      const { backend, session, warnings } = await open()
      const [one, two] = [quick(), quick()]
      await session.submitTasks([one, two])
      backend.onRecorded = fail
      backend.complete(one)
      await turns(2)
      backend.complete(two)
      await turns(2)
      expect(backend.calls).toEqual([[`${one.uid}/1`], [`${two.uid}/1`]])
      expect(warnings[0]).toBe('EndsNotRecorded: recorded() of a backend threw: broken')
    },
  )

  it('recorded: close() without anything left releases at once', async () => {
    const { backend, session, flush } = await open({ hasCheckpoint: true })
    const closing = session.close()
    expect(backend.calls).toEqual(['release'])
    await closing
    expect(flush).not.toHaveBeenCalled()
  })

  it('recorded: what cannot be flushed is tried again, and close() says what is left', async () => {
    const { backend, session, warnings, flush } = await open({ hasCheckpoint: true })
    const [one, two, three] = [quick(), quick(), quick()]
    await session.submitTasks([one, two, three])
    flush?.mockRejectedValueOnce(new Error('disk full'))
    backend.complete(one)
    await turns(5)
    expect([backend.calls, await one]).toEqual([[], undefined])
    backend.complete(two)
    while (backend.calls.length < 1) await turns(1)
    expect(backend.calls).toEqual([[`${one.uid}/1`, `${two.uid}/1`]])
    flush?.mockRejectedValue(new Error('disk full'))
    backend.complete(three)
    await session.close()
    expect(backend.calls.slice(1)).toEqual(['release', 'close'])
    const left = 'backends were not notified of 1 recorded result: disk full'
    expect(warnings).toEqual([`EndsNotRecorded: ${left}`])
  })

  it('recorded: ends of lost lines are never reported, later ones are', async () => {
    const { backend, session, warnings, telemetry, flush } = await open({ hasCheckpoint: true })
    if (telemetry === null) throw new Error('there is no telemetry')
    const [one, two, three] = [quick(), quick(), quick()]
    await session.submitTasks([one, two, three])
    const lostLines = vi.spyOn(telemetry, 'lostLines', 'get').mockReturnValue(0)
    // The application's own flush() has reported the loss, so this one does not.
    backend.complete(one)
    lostLines.mockReturnValue(3)
    while (flush?.mock.calls.length !== 1) await turns(1)
    await turns(2)
    backend.complete(two)
    while (backend.calls.length < 1) await turns(1)
    // Here the flush of recorded ends reports it.
    flush.mockRejectedValueOnce(new Error('0 lines are not on file yet and 1 are lost'))
    lostLines.mockReturnValue(4)
    backend.complete(three)
    await session.close()
    expect(backend.calls).toEqual([[`${two.uid}/1`], 'release', 'close'])
    expect(warnings).toEqual([
      'EndsNotRecorded: backends were not notified of 2 recorded results: ' +
        '4 lines of the record are lost',
    ])
  })

  it('recorded: a backend without it causes no flush', async () => {
    const { session, flush } = await open({ hasCheckpoint: true })
    class Local extends FakeBackend {
      override connect(...args: Parameters<FakeBackend['connect']>) {
        const connection: Connection = super.connect(...args)
        delete connection.recorded
        return connection
      }
    }
    const local = new Local({ name: 'local' })
    session.addBackend(local)
    const task = quick({ backend: 'local' })
    await session.submitTasks([task])
    local.complete(task)
    await turns(5)
    expect([task.state, flush?.mock.calls.length]).toEqual(['DONE', 0])
  })
})
