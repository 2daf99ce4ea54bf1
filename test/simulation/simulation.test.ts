import { spawn } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { text } from 'node:stream/consumers'
import { expect, it } from 'vitest'
import { byRun, chooseSeed } from '../long-run.ts'
import { mistakes } from './mistakes.ts'
import { matchesSubject } from './simulated-nats.ts'
import { SeededRandom } from './seeded-random.ts'
import { SimulatedProcess, VirtualTime } from './virtual-time.ts'

interface Run {
  readonly exitCode: number | null
  readonly output: string
}

/** Runs simulations in a process of their own, with one of the deliberate mistakes if wanted. */
async function simulate(args: readonly string[], mistake?: string): Promise<Run> {
  const { TUTTI_MISTAKE: _, ...rest } = process.env
  const env = mistake === undefined ? rest : { ...rest, TUTTI_MISTAKE: mistake }
  const child = spawn(process.execPath, ['scripts/simulate.ts', ...args], { env })
  const exited = new Promise<number | null>((resolve) => {
    child.on('close', resolve)
  })
  const [output, errors, exitCode] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    exited,
  ])
  return { exitCode, output: output + errors }
}

const traceOf = ({ output }: Run): string | undefined => /trace (\w{64})$/m.exec(output)?.[1]

const hourMs = 3_600_000

/** Simulates in one process per core. */
async function simulateSeeds(seed: number, count: number, args: readonly string[]): Promise<void> {
  const processes = Math.max(1, Math.min(availableParallelism(), 8))
  const seeds = Math.ceil(count / processes)
  const runs = await Promise.all(
    Array.from({ length: processes }, (_, at) =>
      simulate(['--seed', `${seed + at * seeds}`, '--seeds', `${seeds}`, ...args]),
    ),
  )
  for (const run of runs) {
    expect(run).toMatchObject({ exitCode: 0 })
    expect(run.output).toContain(' 0 failed')
  }
}

it(
  'every task ends once in the simulated cluster, whatever fails',
  () => simulateSeeds(byRun(1, Math.abs(chooseSeed())), byRun(5000, 1_000_000), []),
  12 * hourMs,
)

it(
  'every task ends once in the simulated cluster with signed and encoded messages',
  () => simulateSeeds(byRun(1, Math.abs(chooseSeed())), byRun(200, 20_000), ['--shells']),
  2 * hourMs,
)

it('the same seeds give the same trace in two processes', async () => {
  const args = ['--seed', '300', '--seeds', '20']
  const [first, second] = await Promise.all([simulate(args), simulate(args)])
  expect(traceOf(first)).toBeDefined()
  expect(traceOf(second)).toBe(traceOf(first))
  expect(traceOf(await simulate(['--seed', '301', '--seeds', '20']))).not.toBe(traceOf(first))
})

it(
  'the simulation finds every deliberate mistake',
  async () => {
    expect(mistakes.length).toBeGreaterThanOrEqual(12)
    const missed: string[] = []
    for (const { name, seed } of mistakes) {
      const args = byRun(
        // A change of the protocol changes what happens with a seed.
        ['--seed', `${seed}`, '--seeds', '200'],
        ['--seed', `${Math.abs(chooseSeed())}`, '--seeds', '2000'],
      )
      const run = await simulate([...args, '--first', '--no-shrink'], name)
      if (run.exitCode !== 1 || !/^seed \d+ fails:$/m.test(run.output)) missed.push(name)
    }
    expect(missed).toEqual([])
  },
  12 * hourMs,
)

it('seeds that find a mistake pass without it', async () => {
  const seeds = mistakes.flatMap(({ seed }) => ['--seed', `${seed}`])
  const run = await simulate(seeds)
  expect(run.output).toContain(`${mistakes.length} simulations, 0 failed`)
  expect(run.exitCode).toBe(0)
})

it('a failing simulation prints how to repeat it with the fewest faults', async () => {
  const mistake = mistakes.find(
    ({ name }) => name === 'a driver does not report tasks that have moved',
  )
  const { output } = await simulate(['--seed', `${mistake?.seed}`], mistake?.name)
  const shortest = /--faults '(.*)'$/m.exec(output)?.[1] ?? ''
  expect(JSON.parse(shortest)).not.toEqual([])
  const args = ['--seed', `${mistake?.seed}`, '--trace', '--faults', shortest]
  const again = await simulate(args, mistake?.name)
  expect(again.exitCode).toBe(1)
  expect(again.output).toContain(' violation: ')
})

it('a stopped process does what happened meanwhile when it is continued', async () => {
  const time = new VirtualTime()
  const process = new SimulatedProcess(time)
  const done: string[] = []
  process.clock.after(10, () => done.push('first'))
  const cancel = process.clock.after(20, () => done.push('canceled'))
  process.clock.after(30, () => done.push('second'))
  time.at(5, () => process.stop())
  time.at(50, () => {
    done.push('continued')
    process.continue()
    cancel()
  })
  await time.run(100, () => false)
  expect([done, process.clock.monotonicMs()]).toEqual([['continued', 'first', 'second'], 50])
  process.clock.after(10, () => done.push('dead'))
  process.kill()
  await time.run(200, () => false)
  expect(done).toHaveLength(3)
})

it.each([
  ['a.b', 'a.b', true],
  ['a.b', 'a.b.c', false],
  ['a.*', 'a.b', true],
  ['a.*', 'a.b.c', false],
  ['a.>', 'a.b.c', true],
  ['a.>', 'b.c', false],
])('the subject pattern %s with %s', (pattern, subject, isMatch) => {
  expect(matchesSubject(pattern, subject)).toBe(isMatch)
})

it('random numbers of neighboring seeds are unrelated', () => {
  const firsts = Array.from({ length: 1000 }, (_, seed) => new SeededRandom(seed).next())
  const lows = firsts.filter((one) => one < 0.1)
  expect(lows.length).toBeGreaterThan(70)
  expect(lows.length).toBeLessThan(130)
  expect(new Set(firsts).size).toBe(1000)
})
