import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Worker } from 'node:worker_threads'
import { describe, expect, it, onTestFinished } from 'vitest'
import { makeEvent } from '../../src/events/make-event.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import type { TelemetryManager } from '../../src/telemetry/manager.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { byRun, chooseSeed, createRandom } from '../long-run.ts'
import { startChild } from '../checkpoint/child.ts'
import { FakeDisk } from '../checkpoint/fake-disk.ts'
import { eventsIn, spansIn, tempFolder, turn } from './open-telemetry.ts'
import { changeOf, openThreaded, recordLife, threadParts } from './record-runs.ts'

const Mark = defineEvent('thread.Mark', { text: 'str' })
const life = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted']

interface Opened {
  readonly telemetry: TelemetryManager
  readonly folder: string
  readonly warnings: string[]
}

function open(writer = threadParts.writer ?? {}): Opened {
  const [folder, warnings] = [tempFolder(), [] as string[]]
  const options = {
    sessionId: 's1',
    checkpointPath: folder,
    clock: systemClock,
    log: { warn: (code: string) => void warnings.push(code) },
  }
  return { telemetry: openThreaded(options, writer), folder, warnings }
}

/** The threads that this process starts during the test. */
function watchThreads(): Worker[] {
  const threads: Worker[] = []
  const listener = (worker: Worker): void => void threads.push(worker)
  process.on('worker', listener)
  onTestFinished(() => void process.off('worker', listener))
  return threads
}

/** Each of the tasks has its events and its span exactly once, in order. */
function expectLives(folder: string, count: number): void {
  const events = eventsIn(folder).filter(({ task_id: uid }) => uid !== null)
  const expected = Array.from({ length: count }, (_, task) =>
    life.map((type) => `${type} t${task}`),
  ).flat()
  expect(events.map(({ event_type: type, task_id: uid }) => `${type} ${uid}`)).toEqual(expected)
  expect(new Set(events.map(({ event_id: id }) => id)).size).toBe(events.length)
  const spans = spansIn(folder).filter(({ name }) => name === 'task')
  expect(spans.map(({ attributes }) => attributes['task_id'])).toEqual(
    Array.from({ length: count }, (_, task) => `t${task}`),
  )
}

describe('row 126: the thread that writes the record', () => {
  it('row 126: a full ring makes the emitter wait, and loses or reorders nothing', async () => {
    const { telemetry, folder, warnings } = open({ linesBeforeThread: 0, ringBytes: 4096 })
    const threads = watchThreads()
    // A run without turns of the event loop ends before the thread is up.
    const started = once(process, 'worker').then(async ([thread]) =>
      once(thread as Worker, 'online'),
    )
    await telemetry.start()
    recordLife(telemetry, 't0')
    await started
    for (let task = 1; task < 2000; task++) {
      recordLife(telemetry, `t${task}`)
      if (task % 500 === 0) await telemetry.flush()
    }
    await telemetry.stop()
    expectLives(folder, 2000)
    expect(threads).toHaveLength(1)
    expect(telemetry.summary().telemetry.in_place_writes).toBeGreaterThan(0)
    expect(warnings).toEqual([])
  })

  it('row 126: without a thread, lines are written in place, with one warning', async () => {
    const startThread = (): never => {
      throw new Error('no threads here')
    }
    const { telemetry, folder, warnings } = open({ linesBeforeThread: 0, startThread })
    await telemetry.start()
    for (let task = 0; task < 500; task++) recordLife(telemetry, `t${task}`)
    await turn()
    for (let task = 500; task < 1000; task++) recordLife(telemetry, `t${task}`)
    await telemetry.stop()
    expectLives(folder, 1000)
    expect(warnings).toEqual(['CheckpointThreadEnded'])
  })

  const kills = byRun(5, 200)
  it(`row 126: ${kills} threads killed at random moments lose and double nothing`, async () => {
    const random = createRandom(chooseSeed())
    const threads = watchThreads()
    for (let kill = 0; kill < kills; kill++) {
      const { telemetry, folder, warnings } = open({ linesBeforeThread: 0, ringBytes: 32_768 })
      await telemetry.start()
      const count = 300 + Math.floor(random() * 1500)
      const killAt = Math.floor(random() * count)
      for (let task = 0; task < count; task++) {
        recordLife(telemetry, `t${task}`)
        if (task === killAt) void threads.at(-1)?.terminate()
        if (task % 50 === 0) await turn()
      }
      await telemetry.stop()
      expectLives(folder, count)
      expect(warnings.length).toBeLessThanOrEqual(1)
    }
    expect(threads).toHaveLength(kills)
  })

  it('row 126: flush resolves when everything before it is in the file', async () => {
    const { telemetry, folder } = open()
    await telemetry.start()
    for (let task = 0; task < 1500; task++) {
      recordLife(telemetry, `t${task}`)
      if (task % 300 === 299) {
        await telemetry.flush()
        expectLives(folder, task + 1)
      }
    }
    await telemetry.stop()
  })

  it('row 126: lines larger than the ring stay in order', async () => {
    const { telemetry, folder } = open({ linesBeforeThread: 0, ringBytes: 4096 })
    await telemetry.start()
    const texts = Array.from(
      { length: 40 },
      (_, at) => `${at}${'€'.repeat(at % 3 === 0 ? 60_000 : 1)}`,
    )
    for (const text of texts) {
      telemetry.emit(makeEvent(Mark, { session_id: 's1', backend: 'local', text }))
      if (text.length > 1000) await turn()
    }
    await telemetry.stop()
    const marks = eventsIn(folder).filter(({ event_type: type }) => type === 'thread.Mark')
    expect(marks.map((event) => event['text'])).toEqual(texts)
  })
})

describe('row 126: the record while it is written', () => {
  it('row 126: telemetry that stops before its thread is up writes everything', async () => {
    const { telemetry, folder, warnings } = open({ linesBeforeThread: 0 })
    const started = once(process, 'worker')
    await telemetry.start()
    recordLife(telemetry, 't0')
    await telemetry.stop()
    const [thread] = (await started) as [Worker]
    await once(thread, 'exit')
    expectLives(folder, 1)
    expect(warnings).toEqual([])
  })

  it('row 126: a line that waits for 25 ms is written in the turn that blocks', async () => {
    const { telemetry, folder } = open({ linesBeforeThread: 1e9 })
    await telemetry.start()
    await telemetry.flush()
    const from = systemClock.now() + 1
    const recordAt = (uid: string, seconds: number): void =>
      telemetry.recordTask({
        ...changeOf('TaskCreated', uid),
        event_time: from + seconds,
        emit_time: from + seconds,
      })
    const uids = (): unknown[] => eventsIn(folder).flatMap(({ task_id: uid }) => uid ?? [])
    recordAt('early', 0)
    recordAt('later', 0.01)
    expect(uids()).toEqual([])
    recordAt('last', 0.026)
    expect(uids()).toContain('early')
    await telemetry.stop()
    expect(uids()).toEqual(['early', 'later', 'last'])
  })

  it('row 48: CheckpointDegraded has the same place in the file as for subscribers', async () => {
    const disk = new FakeDisk()
    const { telemetry, warnings } = open({ linesBeforeThread: 1e9, files: disk })
    const received: string[] = []
    telemetry.subscribe(
      ({ event_type: type, task_id: uid }) => void received.push(`${type} ${uid}`),
    )
    await telemetry.start()
    await telemetry.flush()
    disk.answer = () => 'ENOSPC'
    for (let task = 0; task < 100; task++) recordLife(telemetry, `t${task}`)
    disk.answer = () => Infinity
    await telemetry.stop()
    const lines = disk.text.split('\n').filter((line) => line.startsWith('{"section":"event"'))
    const events = lines.map((line) => JSON.parse(line) as { event_type: string; task_id: unknown })
    expect(events.map((event) => `${event.event_type} ${String(event.task_id)}`)).toEqual(received)
    expect(received).toContain('tutti.CheckpointDegraded null')
    expect(received).toContain('tutti.CheckpointRecovered null')
    expect(warnings).toEqual(['CheckpointDegraded'])
  })

  it('row 126: stopped managers leave no open file and no thread', async () => {
    const count = (folder: string): number => readdirSync(`/proc/self/${folder}`).length
    const threads = watchThreads()
    const files = count('fd')
    for (let run = 0; run < 20; run++) {
      const { telemetry, folder } = open({ linesBeforeThread: 0 })
      await telemetry.start()
      for (let task = 0; task < 10; task++) recordLife(telemetry, `t${task}`)
      await turn()
      await telemetry.stop()
      expectLives(folder, 10)
    }
    expect(threads).toHaveLength(20)
    await Promise.all(threads.map(async (thread) => thread.terminate()))
    expect(count('fd')).toBeLessThan(files + 20)
  })
})

describe('row 126: the end of the process', () => {
  const program = join(import.meta.dirname, 'fixtures', 'exit-beside-thread.ts')
  const ends = ['end', 'exit', 'throw'] as const
  const states = ['alive', 'killed', 'killed now', 'starting'] as const
  const cases = ends.flatMap((how) => states.map((state) => [how, state] as const))
  const runs = byRun(1, 30)
  it.each(cases)(
    'row 126: the last events are in the file once: %s, thread %s',
    async (how, state) => {
      for (let run = 0; run < runs; run++) {
        const folder = tempFolder()
        const child = spawn(process.execPath, [program, how, state, folder], { stdio: 'pipe' })
        const [code] = (await once(child, 'close')) as [number | null]
        expect(code).toBe({ end: 0, exit: 7, throw: 1 }[how])
        expectLives(folder, 3000)
      }
    },
    runs * 60_000,
  )

  it('row 126: stop ends the thread even if a preloaded module has a timer', async () => {
    const preload = '--import=data:text/javascript,setInterval(()=>{},1000)'
    const folder = tempFolder()
    const child = spawn(process.execPath, [preload, program, 'stop', 'alive', folder])
    const [exitCode] = (await once(child, 'close')) as [number | null]
    expect(exitCode).toBe(8)
    expectLives(folder, 3000)
  })

  it('row 126: lines beyond a full disk are kept, and written later', async () => {
    const folder = tempFolder()
    const child = startChild(
      join('..', '..', 'telemetry', 'fixtures', 'thread-at-file-limit.ts'),
      [folder],
      {
        shell: 'ulimit -S -f 256; exec "$@"',
      },
    )
    expect(await child.nextLine()).toBe('degraded EFBIG')
    child.send('raise')
    expect(await child.nextLine()).toBe('recovered 0')
    expect(await child.ended).toBe(0)
    expectLives(folder, 2000)
  })
})
