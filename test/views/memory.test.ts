import { expect, it } from 'vitest'
import { byRun } from '../long-run.ts'
import { createRunPass } from '../../src/views/all-panels.ts'
import { names } from '../../src/views/panels/names.ts'
import { Pass } from '../../src/views/pass.ts'
import { verify } from '../../src/views/panels/verify.ts'
import { lifeOf } from './view-event.ts'

/** `npm test`: just above 3/4 of a power of two, where the uid index has doubled its slots. */
const tasks = byRun(3 * 2 ** 13 + 1, 1_000_000)
/** Columns grow by blocks of 4096 rows. */
const constantBytes = 250_000

/**
 * The bytes of plain state: typed arrays as they are, everything else as its largest estimate. An
 * exact count, unlike the heap of the process.
 */
function bytesOf(value: unknown): number {
  if (ArrayBuffer.isView(value)) return value.byteLength + 200
  if (typeof value === 'string') return 2 * value.length + 24
  if (typeof value !== 'object' || value === null) return 16
  const parts = value instanceof Map ? [...value].flat() : Object.values(value)
  return parts.reduce((sum: number, part: unknown) => sum + bytesOf(part) + 32, 64)
}

it.each([
  ['generated uids', (at: number) => `task.${String(at).padStart(6, '0')}`],
  ['uids of 36 characters', (at: number) => `${at}`.padStart(36, '0123456789abcdef-')],
])(`state of every panel after ${tasks} tasks with %s: at most 64 bytes a task`, (_, uidOf) => {
  const pass = createRunPass()
  const verifying = new Pass({ verify })
  for (let at = 0; at < tasks; at++) {
    for (const event of lifeOf(uidOf(at), { attributes: { worker_id: `w${at % 8}` } })) {
      pass.take(event)
      verifying.take(event)
    }
  }
  const states = { counts: pass.counts, ...pass.states, ...verifying.states }
  for (const [name, state] of Object.entries(states)) {
    expect(bytesOf(state) - constantBytes, name).toBeLessThanOrEqual(64 * tasks)
  }
  // All together: beside counts 14 bytes in names, 8 in verify, 31 in lanes and 29 in bounds.
  const all = Object.values(states).reduce((sum, state) => sum + bytesOf(state), 0)
  expect(all - 2 * constantBytes).toBeLessThanOrEqual((64 + 82) * tasks)
})

it('state of names: at most 64 bytes a task even when each task has a name of its own', () => {
  const pass = new Pass({ names })
  for (let at = 0; at < tasks; at++) {
    const attributes = { executable: `run-${at}`, task_type: 'function' }
    for (const event of lifeOf(`t${at}`, { attributes })) pass.take(event)
  }
  expect(bytesOf(pass.states.names) - constantBytes).toBeLessThanOrEqual(64 * tasks)
})
