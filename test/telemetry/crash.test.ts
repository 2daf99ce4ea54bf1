import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { tempFolder } from './open-telemetry.ts'

const kills = process.env['TUTTI_LONG'] === undefined ? 50 : 1000
const program = join(import.meta.dirname, 'fixtures', 'emit-until-killed.ts')
const life = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted']

/** A small generator, so that a failing run can be repeated from its seed. */
function createRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

/** Kills the child at a moment after its first acknowledgement; gives what it had acknowledged. */
async function killOne(
  cache: string,
  folder: string,
  batch: number,
  delayMs: number,
): Promise<number> {
  const child = spawn(process.execPath, [program, folder, String(batch)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, NODE_COMPILE_CACHE: cache },
  })
  const ended = once(child, 'close')
  let output = ''
  child.stdout.setEncoding('latin1')
  child.stdout.on('data', (text: string) => {
    if (output === '') setTimeout(() => child.kill('SIGKILL'), delayMs)
    output += text
  })
  const [, signal] = (await ended) as [number | null, string | null]
  expect(signal).toBe('SIGKILL')
  // The last line may have been cut by the kill; only whole ones count.
  return Number(output.split('\n').at(-2))
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
  // What came after has no hole either.
  for (const types of seen.values()) expect(life.slice(0, types.length)).toEqual(types)
}

describe('row 53: kill -9', () => {
  it(
    `row 53: after ${kills} kills no acknowledged event is missing`,
    async () => {
      const seed = Number(process.env['TUTTI_SEED'] ?? Math.floor(Math.random() * 2 ** 32))
      process.stdout.write(`row 53: TUTTI_SEED=${seed}\n`)
      const random = createRandom(seed)
      const cache = tempFolder()
      let left = kills
      let most = 0
      const worker = async (): Promise<void> => {
        while (left-- > 0) {
          const batch = 1 + Math.floor(random() * 500)
          const delayMs = random() ** 2 * 300
          const folder = tempFolder()
          const acknowledged = await killOne(cache, folder, batch, delayMs)
          expect(acknowledged).toBeGreaterThan(0)
          most = Math.max(most, acknowledged)
          await checkFile(folder, acknowledged)
        }
      }
      await Promise.all([worker(), worker()])
      expect(most).toBeGreaterThan(500)
    },
    kills * 10_000,
  )
})
