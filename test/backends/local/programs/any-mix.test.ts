import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { launchersOf, openPool, type PoolDriver, processes } from './pool-driver.ts'
import { assertProperty } from '../../../property.ts'

/** Tests in other processes have sleepers of their own. */
const nap = `sleep 30.${process.pid}`

/** The actions of a program, and the actions on it. */
const script = fc.constantFrom(
  'true',
  'exit 3',
  'kill -KILL $$',
  'echo out; sleep 0.02',
  'sleep 0.1 & sleep 0.03; exit 1',
  "trap '' TERM; sleep 0.05; sleep 0.05",
  `exec ${nap}`,
)
const deed = fc.oneof(
  { weight: 4, arbitrary: fc.constant('none' as const) },
  { weight: 3, arbitrary: fc.constant('cancel-at-once' as const) },
  { weight: 3, arbitrary: fc.constant('cancel-at-start' as const) },
  { weight: 2, arbitrary: fc.constant('timeout' as const) },
  { weight: 1, arbitrary: fc.constant('kill-launcher' as const) },
)
const plan = fc.array(fc.record({ script, deed }), { minLength: 5, maxLength: 25 })

type Plan = { readonly script: string; readonly deed: string }

/** Sleepers must be stopped; a killed launcher may belong to another program. */
const needsStop = ({ script: text, deed: done }: Plan) =>
  text.includes(nap) && (done === 'none' || done === 'kill-launcher')

function perform(driver: PoolDriver, { script: text, deed: done }: Plan): Promise<unknown> {
  const run = driver.submit({
    executable: 'sh',
    arguments: ['-c', text],
    ...(done === 'timeout' ? { timeoutSeconds: 0.04 } : {}),
  })
  if (done === 'cancel-at-once') driver.pool.cancel(run.job, 'at once')
  if (done === 'cancel-at-start') {
    void run.started.then(() => driver.pool.cancel(run.job, 'at its start'))
  }
  if (done === 'kill-launcher') {
    void run.started.then(() => killLauncher())
  }
  return run.ended
}

function killLauncher(): void {
  for (const { pid } of launchersOf(process.pid).slice(0, 1)) process.kill(pid, 'SIGKILL')
}

describe.each(['auto', 'plain'] as const)('any mix of programs, with the %s spawner', (spawner) => {
  it('row 23: every job ends once, its start comes first, and nothing is left', async () => {
    await assertProperty(
      fc.asyncProperty(plan, async (plans) => {
        const safe = plans.filter((each) => !needsStop(each))
        const driver = openPool({ spawner, graceSeconds: 0.03, maxProcesses: 6, launchers: 2 })
        await Promise.all(safe.map((each) => perform(driver, each)))
        await driver.pool.close('over')
        const ends = driver.reports.filter(({ report }) => report.kind !== 'start')
        expect(new Set(ends.map(({ job }) => job)).size).toBe(safe.length)
        expect(ends).toHaveLength(safe.length)
        for (const { job } of ends) {
          const starts = driver.reportsOf(job).slice(0, -1)
          expect(starts.length).toBeLessThanOrEqual(1)
          expect(starts.every(({ kind }) => kind === 'start')).toBe(true)
        }
        expect(driver.finished).toHaveLength(safe.length + driver.givenBack.length)
        expect(launchersOf(process.pid)).toEqual([])
        const sleepers = processes().filter(({ command }) => command === nap)
        for (const { pid } of sleepers) process.kill(pid, 'SIGKILL')
        // Without koffi, a program that a launcher started as it was killed is not found.
        const isKnownGap = spawner === 'plain' && safe.some((each) => each.deed === 'kill-launcher')
        expect(isKnownGap ? [] : sleepers).toEqual([])
      }),
      { numRuns: 6, longRuns: 100 },
    )
  })
})
