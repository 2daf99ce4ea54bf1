import { expect, it } from 'vitest'
import { readViews } from '../../src/record/record-views.ts'
import { createRunPass } from '../../src/views/all-panels.ts'
import { copyNumbers, shareColumns } from '../../src/views/columns.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { createOverview } from '../../src/views/texts/run-overview.ts'
import { endedRecord } from '../dashboard/test-dashboard.ts'
import { lifeOf } from './view-event.ts'

it('a copy of the numbers keeps its values when the pass goes on', () => {
  const pass = createRunPass()
  for (const event of lifeOf('t1')) pass.take(event)
  const moved: ArrayBuffer[] = []
  const states = { counts: pass.counts, panels: pass.states }
  const cloned = structuredClone(copyNumbers(states, moved), { transfer: moved })
  expect(moved.length).toBeGreaterThan(10)
  expect(moved.every(({ detached }) => detached)).toBe(true)
  for (const event of lifeOf('t2')) pass.take(event)
  const copy = createRunPass(cloned)
  expect(counts.show(copy.counts).completed).toBe(1)
  expect(counts.show(pass.counts).completed).toBe(2)
})

it('other threads read shared columns without a copy, also those of a snapshot', async () => {
  const path = endedRecord(5000)
  const plain = await readViews(path, { snapshot: 'write' })
  const overviewOf = ({ pass }: typeof plain): unknown => {
    const { boundText, names } = createOverview(pass, 'ended', pass.states.run.lastTime)
    return { boundText, names }
  }
  shareColumns()
  for (const snapshot of ['use', 'renew', 'use'] as const) {
    const views = await readViews(path, { snapshot })
    const [block] = views.pass.states.lanes.start.blocks
    expect(block?.buffer).toBeInstanceOf(SharedArrayBuffer)
    expect(overviewOf(views)).toEqual(overviewOf(plain))
  }
})
