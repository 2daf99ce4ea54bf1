import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { byRun, chooseSeed, createRandom } from '../long-run.ts'
import { tempFolder } from './open-telemetry.ts'

const kills = byRun(10, 1000)
const maxTasks = byRun(4000, 20_000)
const program = join(import.meta.dirname, 'fixtures', 'emit-until-killed.ts')
const life = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted']

/** Kills the child once it acknowledged `enough` tasks; gives how many it had acknowledged. */
async function killOne(folder: string, batch: number, enough: number): Promise<number> {
  const child = spawn(process.execPath, [program, folder, String(batch)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'close')
  let [acknowledged, cut] = [0, '']
  child.stdout.setEncoding('latin1')
  child.stdout.on('data', (text: string) => {
    // The last line may have been cut by the kill; only whole ones count.
    const lines = (cut + text).split('\n')
    cut = lines.pop() ?? ''
    acknowledged = Number(lines.at(-1) ?? acknowledged)
    if (acknowledged >= enough) child.kill('SIGKILL')
  })
  const [, signal] = (await ended) as [number | null, string | null]
  expect(signal).toBe('SIGKILL')
  return acknowledged
}

async function checkFile(folder: string, acknowledged: number): Promise<void> {
  const name = readdirSync(folder).find((one) => one.endsWith('.jsonl')) ?? ''
  const seen = new Map<string, string[]>()
  const reading = readCheckpoint(join(folder, name))
  let next = await reading.next()
  for (; next.done !== true; next = await reading.next()) {
    const line = next.value
    if (line.section !== 'event' || typeof line['task_id'] !== 'string') continue
    const types = seen.get(line['task_id']) ?? []
    types.push(line.event_type)
    seen.set(line['task_id'], types)
  }
  // Bad lines in the middle are counted there; a torn tail is not one of them.
  expect(next.value.bad).toBe(0)
  for (let task = 0; task < acknowledged; task++) {
    const types = seen.get(`t${task}`)
    if (types?.join() !== life.join()) throw new Error(`t${task}: ${types?.join() ?? 'missing'}`)
  }
  // The later lines have no gap either. An assertion for each takes longer than to read them.
  const isGap = (types: readonly string[]): boolean => types.some((type, at) => type !== life[at])
  expect([...seen].filter(([, types]) => isGap(types))).toEqual([])
}

describe('row 53: kill -9', () => {
  it(
    `row 53: after ${kills} kills no acknowledged event is missing`,
    async () => {
      const random = createRandom(chooseSeed())
      let left = kills
      const worker = async (): Promise<void> => {
        while (left-- > 0) {
          const batch = 1 + Math.floor(random() * 500)
          const enough = 1 + Math.floor(random() ** 2 * maxTasks)
          const folder = tempFolder()
          const acknowledged = await killOne(folder, batch, enough)
          expect(acknowledged).toBeGreaterThanOrEqual(enough)
          await checkFile(folder, acknowledged)
        }
      }
      await Promise.all([worker(), worker()])
    },
    kills * 10_000,
  )
})
