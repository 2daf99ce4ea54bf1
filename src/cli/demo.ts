/** `tutti demo`: a real mixed workload, with some tasks that fail on purpose. */

import { relative } from 'node:path'
import { type AITask, ComputeTask, ConcurrentBackend, Session } from '../index.ts'
import { askForStories, openStoryteller, tellStory } from './demo-stories.ts'
import { simulate } from './demo-tasks.ts'
import { exitCodes, signalExitCodes } from './exit-codes.ts'
import { runLive } from './live-run.ts'
import type { Output } from './output.ts'
import { summaryLines } from './progress.ts'

export interface DemoOptions {
  /** Simulations; each ten of them are sorted by a program. */
  readonly simulations: number
  readonly folder: string
  /** A GGUF file; without one there are no AI tasks. */
  readonly model?: string
  readonly redrawMs: number
}

const darts = 400_000
const perSort = 10

/** Resolves with the exit code: the failures are part of the show, a signal is not. */
export async function demo(options: DemoOptions, output: Output): Promise<number> {
  const local = await ConcurrentBackend.create({ name: 'local' })
  const storyteller = options.model === undefined ? null : await openStoryteller(options, output)
  const session = new Session(storyteller === null ? [local] : [local, storyteller])
  const telemetry = await session.startTelemetry({
    checkpointPath: options.folder,
    checkpointSeconds: 1,
    resourcePollSeconds: 1,
  })
  const estimates: number[] = []
  let story: AITask | null = null
  const { pass, signal } = await runLive(
    { session, telemetry, output, redrawMs: options.redrawMs },
    async () => {
      const stories = storyteller === null ? [] : askForStories(options.simulations)
      await session.submitTasks(stories)
      estimates.push(...(await simulateAndSort(session, options.simulations)))
      await session.waitTasks(stories)
      story = stories.find(({ response }) => response !== undefined) ?? null
    },
  )
  const journal = nearestPath(telemetry.checkpointFile ?? '')
  const summary = telemetry.summary()
  const pi = estimates.reduce((sum, one) => sum + one, 0) / estimates.length
  output.result({ ...summary, estimate: estimates.length > 0 ? pi : null, journal }, [
    ...(signal === null ? [] : [`stopped early by ${signal}`]),
    ...summaryLines(pass),
    ...(estimates.length > 0 ? [`pi is about ${pi.toFixed(4)} (${estimates.length} medians)`] : []),
    ...(story === null ? [] : [`a story: ${tellStory(story)}`]),
    `journal  ${journal}`,
    `check    npx tutti journal verify ${journal}`,
  ])
  return signal === null ? exitCodes.ok : signalExitCodes[signal]
}

/** Functions on threads make estimates; a program, `sort`, orders them; the medians come back. */
async function simulateAndSort(session: Session, count: number): Promise<number[]> {
  const simulations = Array.from(
    { length: count },
    (_, seed) => new ComputeTask({ function: simulate, args: [seed, darts] }),
  )
  await session.submitTasks(simulations)
  const sorts: ComputeTask[] = []
  for (let from = 0; from < count; from += perSort) {
    const group = simulations.slice(from, from + perSort)
    await session.waitTasks(group)
    const values = group.flatMap(({ returnValue }) =>
      returnValue === undefined ? [] : [returnValue],
    )
    const sort = new ComputeTask({
      executable: 'sort',
      arguments: ['-g'],
      // Before the simulations that still wait: their group is complete.
      priority: 1,
      stdin: `${values.join('\n')}\n`,
    })
    sorts.push(sort)
    await session.submitTasks([sort])
  }
  await session.waitTasks(sorts)
  return sorts.flatMap(({ stdout = '' }) => {
    const ordered = stdout.trim().split('\n').map(Number)
    const median = ordered[Math.floor(ordered.length / 2)]
    return median === undefined || Number.isNaN(median) ? [] : [median]
  })
}

/** As a person would type it: relative, unless it lies elsewhere. */
function nearestPath(path: string): string {
  const near = relative(process.cwd(), path)
  return near.startsWith('..') ? path : near
}
