import { appendFileSync, copyFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import type { CheckpointLine } from '../../../src/checkpoint/format.ts'
import { resultsPathOf } from '../../../src/checkpoint/results-file.ts'
import { CheckpointError } from '../../../src/foundation/errors.ts'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { FakeBackend } from '../../../src/testing/fake-backend.ts'
import { tempFolder } from '../../checkpoint/open-writer.ts'
import { byRun, hangMs } from '../../long-run.ts'

function nothing(): void {}

const uids = byRun(['a'], ['a', 'b', 'c'])

const makeTasks = (): ComputeTask<void>[] =>
  uids.map((uid) => new ComputeTask({ function: nothing, args: [], uid }))

/** Runs the tasks; the value of each names the run that computed it. */
async function run(record: string | null, name: string, folder: string | null) {
  const backend = new FakeBackend({ name: 'local' })
  const session = new Session([backend], { log: { warn() {} } })
  try {
    if (record !== null) await session.resume(record)
    const telemetry =
      folder === null
        ? null
        : await session.startTelemetry({ checkpointPath: folder, keepResults: true })
    const tasks = makeTasks()
    await session.submitTasks(tasks)
    for (const task of tasks.filter(({ state }) => state !== 'DONE')) {
      backend.start(task)
      backend.complete(task, `${name} ${task.uid}`)
    }
    return { record: telemetry?.checkpointFile ?? '', values: await Promise.all(tasks) }
  } finally {
    await session.close()
  }
}

/** The end of the line that reports the end of a task. */
function endOf(content: Buffer, uid: string): number {
  let offset = 0
  for (const text of content.toString().split('\n')) {
    const line = JSON.parse(text) as CheckpointLine
    if (line.section === 'event' && line.event_type === 'TaskCompleted' && line.task_id === uid)
      return offset + Buffer.byteLength(text)
    offset += Buffer.byteLength(text) + 1
  }
  throw new Error(`${uid} has no end`)
}

/** Each has a file of its own, for resume waits for the disk most of the time. */
const lanes = 8

/** All lengths in the long run; else every fourth, and each one next to the border of a line. */
function lengthsOf(content: Buffer): number[] {
  const isBorder = (at: number): boolean => content.subarray(at - 2, at + 1).includes('\n')
  const lengths = Array.from({ length: content.length + 1 }, (_, at) => at)
  return lengths.filter((at) => byRun(at % 4 === 0 || (at > 1 && isBorder(at)), true))
}

it(
  'row 55: a record that is cut after any byte is resumed without a wrong value, or refused',
  { timeout: hangMs * 3 },
  async () => {
    const { record } = await run(null, 'first', tempFolder())
    const content = readFileSync(record)
    const lengths = lengthsOf(content)
    const firstLine = content.indexOf('\n')
    const ends = new Map(uids.map((uid) => [uid, endOf(content, uid)]))

    async function expectCutAt(length: number, cut: string): Promise<void> {
      const found = await run(cut, 'again', null).catch((error: unknown) => error)
      if (length < firstLine) {
        expect(found).toBeInstanceOf(CheckpointError)
        expect(found).toMatchObject({ code: 'CheckpointEmptyError' })
        return
      }
      const expected = [...ends].map(([uid, end]) => `${length < end ? 'again' : 'first'} ${uid}`)
      expect(found).toMatchObject({ values: expected })
    }

    async function runLane(lane: number): Promise<void> {
      const cut = join(tempFolder(), 's.1.telemetry.jsonl')
      copyFileSync(resultsPathOf(record), resultsPathOf(cut))
      let written = 0
      for (const length of lengths.filter((_, at) => at % lanes === lane)) {
        // The file grows in place: rewriting it for each cut takes longer than its resume.
        appendFileSync(cut, content.subarray(written, length))
        written = length
        await expectCutAt(length, cut)
      }
      expect(readFileSync(cut)).toEqual(content.subarray(0, written))
    }

    await Promise.all(Array.from({ length: lanes }, (_, lane) => runLane(lane)))
  },
)
