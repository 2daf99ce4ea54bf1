/** `tutti demo`: a real mixed workload, with some tasks that fail on purpose. */

import { countText } from '../views/readable.ts'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { makeFolders } from '../checkpoint/files.ts'
import { AITask, ComputeTask, ConcurrentBackend, Session } from '../index.ts'
import { InferenceBackend } from '../inference/index.ts'
import { toShortPath } from '../record/find-record.ts'
import { guideUrl, simulate } from './demo-tasks.ts'
import { exitCodes, signalExitCodes, stopOnSignal } from './exit.ts'
import { runLive } from './live-run.ts'
import type { Output } from './output.ts'
import { openRunDashboard } from './dashboard/run-dashboard.ts'

export interface DemoOptions {
  readonly simulations: number
  readonly folder: string
  /** A GGUF file. Without a model, the demo has no AI tasks. */
  readonly model?: string
  readonly dashboard?: boolean
  /** Like `dashboard`. In a terminal, the page stays until the user presses Enter. */
  readonly keepOpen?: boolean
}

const dartsPerSimulation = 400_000
const simulationsPerSort = 10
/** Short, so that the demo does not look stuck to new users. */
const progressIntervalSeconds = 1.5

/** Runs the demo. Failed tasks do not change the exit code, because they are expected. */
export async function demo(options: DemoOptions, output: Output): Promise<number> {
  const { dashboard = false, keepOpen = false } = options
  // Opened first, so that a new user sees its link immediately.
  let recordFile: string | null = null
  await using page = await openRunDashboard(dashboard || keepOpen, () => recordFile, output)
  const code = await runDemo(options, output, (path) => (recordFile = path))
  if (page !== null && keepOpen) await waitForEnter(output)
  return code
}

async function runDemo(
  options: DemoOptions,
  output: Output,
  onRecord: (path: string | null) => void,
): Promise<number> {
  const local = await ConcurrentBackend.create({ name: 'local' })
  const storyteller = options.model === undefined ? null : await openStoryteller(options, output)
  const session = new Session(storyteller === null ? [local] : [local, storyteller])
  const telemetry = await session.startTelemetry({
    checkpointPath: options.folder,
    checkpointSeconds: 1,
    resourcePollSeconds: 1,
  })
  onRecord(telemetry.checkpointFile)
  const estimates: number[] = []
  let story: AITask | null = null
  const parts = { session, telemetry, output, progressIntervalSeconds }
  const signal = await runLive(parts, async () => {
    const stories = storyteller === null ? [] : createStoryTasks(options.simulations)
    await session.submitTasks(stories)
    estimates.push(...(await simulateAndSort(session, options.simulations)))
    await session.waitTasks(stories)
    story = stories.find(({ response }) => response !== undefined) ?? null
  })
  const record = toShortPath(telemetry.checkpointFile ?? '')
  const summary = telemetry.summary()
  const pi = estimates.reduce((sum, one) => sum + one, 0) / estimates.length
  output.result(
    { ...summary, estimate: estimates.length > 0 ? pi : null, record, journal: record },
    [
      ...(signal === null ? [] : [`stopped early by ${signal}`]),
      ...(estimates.length > 0
        ? [`pi is about ${pi.toFixed(4)} (${countText(estimates.length, 'median')})`]
        : []),
      ...(story === null ? [] : [`a story: ${storyText(story)}`]),
      `record  ${record}`,
      `check   npx tutti journal verify ${record}`,
      ...(summary.tasks.failed > 0 ? [`show    npx tutti failures ${record}`] : []),
      `report  npx tutti report ${record}`,
      `read    ${toShortPath(fileURLToPath(guideUrl))}`,
    ],
  )
  return signal === null ? exitCodes.ok : signalExitCodes[signal]
}

/** Waits for Enter or a signal. Without a terminal, returns immediately. */
async function waitForEnter(output: Output): Promise<void> {
  if (!process.stdin.isTTY || !output.isTerminal || output.closed.aborted) return
  output.problem('the page stays open until you press Enter')
  const stop = stopOnSignal(output.closed)
  const lines = createInterface({ input: process.stdin })
  lines.once('line', () => lines.close())
  await once(lines, 'close', { signal: stop.signal }).catch(() => undefined)
  lines.close()
  stop.release()
}

async function simulateAndSort(session: Session, count: number): Promise<number[]> {
  const simulations = Array.from(
    { length: count },
    (_, seed) => new ComputeTask({ function: simulate, args: [seed, dartsPerSimulation] }),
  )
  await session.submitTasks(simulations)
  const sorts: ComputeTask[] = []
  for (let from = 0; from < count; from += simulationsPerSort) {
    const group = simulations.slice(from, from + simulationsPerSort)
    await session.waitTasks(group)
    const values = group.flatMap(({ returnValue }) =>
      returnValue === undefined ? [] : [returnValue],
    )
    const sort = new ComputeTask({
      executable: 'sort',
      arguments: ['-g'],
      // Runs before waiting simulations, because its input is complete.
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

const heroes = ['a cat', 'a small robot', 'Lily', 'an old bear', 'Tom', 'a bird', 'Mia', 'a frog']
const places = ['in the garden', 'by the sea', 'at the park', 'in a big house', 'on a hill']
/** Chosen so that the stories take about as long as the simulations. */
const simulationsPerStory = 8

/** Writes the configuration next to the record, as an example for users. */
async function openStoryteller(
  { folder, model = '' }: { readonly folder: string; readonly model?: string },
  output: Output,
): Promise<InferenceBackend> {
  output.progress([`loading ${basename(model)}`])
  makeFolders(resolve(folder))
  const configFile = join(folder, 'demo-model.yaml')
  const modelName = resolve(model)
  await writeFile(configFile, modelConfig(modelName))
  return InferenceBackend.create({
    name: 'storyteller',
    configFile,
    modelName,
    useService: false,
    onProgress: (text) => output.progress([text]),
  })
}

/** `threads` is 1, because an engine with more threads than free cores is very slow. */
const modelConfig = (model: string): string => `required:
  model_name: ${JSON.stringify(model)}
llm:
  max_model_len: 256
  max_tokens: 60
  temperature: 0.7
engine:
  kind: llama
  threads: 1
  gpu: false
`

function createStoryTasks(simulations: number): AITask[] {
  return Array.from({ length: Math.ceil(simulations / simulationsPerStory) }, (_, at) => {
    const hero = heroes[at % heroes.length]
    const place = places[at % places.length]
    const prompt = `Once upon a time, there was ${hero} who lived ${place}.`
    return new AITask({ prompt, backend: 'storyteller', seed: at })
  })
}

function storyText({ prompt, response = '' }: AITask): string {
  const [first = response] = /^.*?[.!?](?=\s|$)/s.exec(response) ?? []
  return `${prompt} ${first}`.replaceAll(/\s+/g, ' ').trim()
}
