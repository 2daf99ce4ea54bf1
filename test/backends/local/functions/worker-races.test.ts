import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Job } from '../../../../src/backends/backend.ts'
import { systemClock, sleep } from '../../../../src/foundation/clock.ts'
import { addLater, echo, exitIf, spin, spinFor, spinIf, throwLater } from './fixtures/functions.ts'
import { PoolDriver } from './pool-driver.ts'
import { assertProperty } from '../../../property.ts'

const deeds = ['echo', 'object', 'later', 'exit', 'spin', 'cancel', 'leave'] as const
type Deed = (typeof deeds)[number]

/** The expected outcome, whatever races. */
const endings: Readonly<Record<Deed, readonly string[]>> = {
  echo: ['complete'],
  object: ['complete'],
  later: ['complete'],
  exit: ['fail'],
  spin: ['fail'],
  cancel: ['complete', 'cancel'],
  leave: ['complete'],
}

function submit(driver: PoolDriver, deed: Deed): Job {
  const submitted = {
    echo: () => driver.submit(echo, [['text']]),
    object: () => driver.submit(echo, [[{ some: ['object'] }]]),
    later: () => driver.submit(addLater, [[1, 2]]),
    exit: () => driver.submit(exitIf, [[true]]),
    spin: () => driver.submit(spin, [[]], { timeoutSeconds: 0.05 }),
    cancel: () => driver.submit(spinIf, [[false, 'x']]),
    leave: () => driver.submit(throwLater, [[]]),
  }[deed]()
  return submitted[0]
}

describe.for(['thread', 'process'] as const)('races, isolation %s', (isolation) => {
  it('rows 19 and 23: exactly one last report, whatever dies and is canceled', async () => {
    const scenario = fc.record({
      deeds: fc.array(fc.constantFrom(...deeds), { minLength: 1, maxLength: 40 }),
      cancelAfterTurns: fc.array(fc.nat(20), { maxLength: 20 }),
      batchSize: isolation === 'thread' ? fc.constantFrom(1, 3, 16) : fc.constant(1),
      size: fc.constantFrom(1, 2),
    })
    await assertProperty(
      fc.asyncProperty(scenario, async (plan) => {
        const { batchSize, size } = plan
        const driver = new PoolDriver({ isolation, size, batchSize })
        const jobs = plan.deeds.map((deed) => [deed, submit(driver, deed)] as const)
        const toCancel = jobs.filter(([deed]) => deed === 'cancel')
        for (const [at, turns] of plan.cancelAfterTurns.entries()) {
          const job = toCancel[at]?.[1]
          if (job === undefined) break
          for (let turn = 0; turn < turns; turn++) await sleep(systemClock, 0)
          driver.cancel(job)
        }
        const reports = await driver.allEnded(jobs.map(([, job]) => job))
        for (const [at, [deed]] of jobs.entries()) {
          expect(endings[deed], deed).toContain(reports[at]?.kind)
        }
        await driver.pool.close('done')
        await driver.expectAllOver()
      }),
      { numRuns: isolation === 'thread' ? 5 : 3, longRuns: 60 },
    )
  })
})

it('row 23: a cancel at the moment of the end never ends the next job', async () => {
  const driver = new PoolDriver({ isolation: 'thread', size: 1, batchSize: 2 })
  const flags = new Int32Array(new SharedArrayBuffer(4))
  const found = new Set<string>()
  // Moves towards the moment of the end, from both sides.
  let delayMs = 0.2
  for (let round = 0; round < 100; round++) {
    await driver.run(spinFor, flags, 0)
    Atomics.store(flags, 0, 0)
    const [job, next] = driver.submit(spinFor, [
      [flags, 0.2],
      [flags, 1],
    ])
    while (Atomics.load(flags, 0) === 0);
    spinFor(new Int32Array(1), delayMs)
    driver.cancel(job)
    const kinds = (await driver.allEnded([job, next])).map(({ kind }) => kind)
    delayMs *= kinds[0] === 'cancel' ? 1.02 : 0.98
    found.add(kinds.join())
  }
  found.delete('complete,complete')
  found.delete('cancel,complete')
  expect([...found]).toEqual([])
  await driver.expectAllOver()
})
