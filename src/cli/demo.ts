/** `tutti demo`: a real mixed workload, with some tasks that fail on purpose. */

import { writeFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeFolders } from '../checkpoint/files.ts'
import { AITask, ComputeTask, ConcurrentBackend, Session } from '../index.ts'
import { InferenceBackend } from '../inference/index.ts'
import { nearestPath } from '../record/find-record.ts'
import { guide, simulate } from './demo-tasks.ts'
import { exitCodes, signalExitCodes } from './exit.ts'
import { runLive } from './live-run.ts'
import type { Output } from './output.ts'

export interface DemoOptions {
  /** The number of simulations; each program sorts the results of several simulations. */
  readonly simulations: number
  readonly folder: string
  /** A GGUF file; without it the demo has no AI tasks. */
  readonly model?: string
}

const darts = 400_000
const perSort = 10
/** Short, because the demo is what new users run first: it should not look stuck. */
const lineSeconds = 1.5

/** Resolves with the exit code, which failing tasks do not change because they are expected. */
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
  const parts = { session, telemetry, output, lineSeconds }
  const signal = await runLive(parts, async () => {
    const stories = storyteller === null ? [] : askForStories(options.simulations)
    await session.submitTasks(stories)
    estimates.push(...(await simulateAndSort(session, options.simulations)))
    await session.waitTasks(stories)
    story = stories.find(({ response }) => response !== undefined) ?? null
  })
  const record = nearestPath(telemetry.checkpointFile ?? '')
  const summary = telemetry.summary()
  const pi = estimates.reduce((sum, one) => sum + one, 0) / estimates.length
  output.result(
    { ...summary, estimate: estimates.length > 0 ? pi : null, record, journal: record },
    [
      ...(signal === null ? [] : [`stopped early by ${signal}`]),
      ...(estimates.length > 0
        ? [`pi is about ${pi.toFixed(4)} (${estimates.length} medians)`]
        : []),
      ...(story === null ? [] : [`a story: ${storyText(story)}`]),
      `record  ${record}`,
      `check   npx tutti journal verify ${record}`,
      ...(summary.tasks.failed > 0 ? [`show    npx tutti failures ${record}`] : []),
      `report  npx tutti report ${record}`,
      `read    ${nearestPath(fileURLToPath(guide))}`,
    ],
  )
  return signal === null ? exitCodes.ok : signalExitCodes[signal]
}

/** Functions on threads estimate pi, and `sort` programs order the results; returns medians. */
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
      // Before waiting simulations, because the input of this program is complete.
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
/** The number of simulations per story, chosen so that both take about the same time. */
const simulationsPerStory = 8

/** Writes the configuration beside the record, as an example for users. */
async function openStoryteller(
  { folder, model = '' }: { readonly folder: string; readonly model?: string },
  output: Output,
): Promise<InferenceBackend> {
  output.progress([`loading ${basename(model)}`])
  makeFolders(resolve(folder))
  const configFile = join(folder, 'demo-model.yaml')
  const modelName = resolve(model)
  await writeFile(configFile, configuration(modelName))
  return InferenceBackend.create({
    name: 'storyteller',
    configFile,
    modelName,
    useService: false,
    onProgress: (text) => output.progress([text]),
  })
}

/** One thread, because an engine with more threads than free cores is very slow. */
const configuration = (model: string): string => `required:
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

function askForStories(simulations: number): AITask[] {
  return Array.from({ length: Math.ceil(simulations / simulationsPerStory) }, (_, at) => {
    const hero = heroes[at % heroes.length]
    const place = places[at % places.length]
    const prompt = `Once upon a time, there was ${hero} who lived ${place}.`
    return new AITask({ prompt, backend: 'storyteller', seed: at })
  })
}

/** The prompt, completed by the response up to the end of its first sentence. */
function storyText({ prompt, response = '' }: AITask): string {
  const [first = response] = /^.*?[.!?](?=\s|$)/s.exec(response) ?? []
  return `${prompt} ${first}`.replaceAll(/\s+/g, ' ').trim()
}
