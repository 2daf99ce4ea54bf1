/** The panel of inference: the prompts of each model, the batches, and the inference servers. */

import { findText } from '../../views/columns.ts'
import { hasEnded, isQueued } from '../../views/lifecycle.ts'
import { inference, type InferenceView, type ModelView } from '../../views/panels/inference.ts'
import { names } from '../../views/panels/names.ts'
import { numberText, secondsText, shortName } from '../../views/readable.ts'
import type { InferencePanelView } from '../protocol.ts'
import type { ServingFacts } from './query-source.ts'
import type { RunMoment } from './run-moment.ts'
import { shownText } from './shown-texts.ts'

/**
 * The measurements if there are no spans of requests: a caller's telemetry object may not provide
 * them.
 */
const notMeasured = {
  ttft: null,
  betweenTokens: null,
  promptTokensPerSecond: null,
  answerTokensPerSecond: null,
  cacheUse: null,
  prefixHits: null,
}

export function showInference(
  moment: RunMoment,
  serving: ServingFacts | null = null,
): InferencePanelView {
  const view = inference.show(moment.pass.states.inference)
  const prompts = serving === null ? listModels(moment) : [toModelRow(serving)]
  return {
    models: joinModels(prompts, view.models, serving !== null),
    batches: {
      count: view.batches,
      requests: view.requests,
      waitSeconds: view.waitSeconds,
      computeSeconds: view.computeSeconds,
    },
    sizes: view.sizes,
    series: view.series.map(({ time, values: [requests, wait, compute] }) => ({
      time,
      requests: requests ?? 0,
      waitSeconds: wait ?? 0,
      computeSeconds: compute ?? 0,
    })),
    server: [
      ...(serving === null ? [] : listServing(serving, view)),
      ...view.engines.map(({ backend, workerId, batches, requests, failed, maxWait, lost }) => ({
        title: shownText(workerId || backend),
        value:
          `${numberText(requests)} prompts in ${numberText(batches)} batches, ` +
          `${numberText(failed)} failed, longest wait ${secondsText(maxWait)}, ` +
          `lost ${numberText(lost)}`,
      })),
    ],
  }
}

function listServing(
  { workers }: ServingFacts,
  { routes, keys }: InferenceView,
): InferencePanelView['server'][number][] {
  return [
    { title: 'workers', value: numberText(workers) },
    ...countsRow('requests by route', routes),
    ...countsRow('requests by key', keys),
  ]
}

function countsRow(
  title: string,
  counts: ReadonlyMap<string, number>,
): InferencePanelView['server'][number][] {
  const texts = Array.from(counts, ([name, count]) => `${name} ${numberText(count)}`)
  return texts.length === 0 ? [] : [{ title, value: shownText(texts.join(', ')) }]
}

/** Returns a row without ended requests. `joinModels` adds these from the spans of the requests. */
const toModelRow = ({ model, running, queued }: ServingFacts): ModelRow => ({
  ...notMeasured,
  model: shownText(model),
  running,
  waiting: queued,
  done: 0,
  failed: 0,
})

/**
 * Adds the measurements from the spans of requests to the rows of prompts. A prompt has the name of
 * its model, unless the application named it. Requests over HTTP belong to no task, so they get new
 * rows.
 */
function joinModels(
  prompts: readonly ModelRow[],
  measured: readonly ModelView[],
  isServing: boolean,
): ModelRow[] {
  const rows = new Map(prompts.map((row) => [row.model, row]))
  for (const { done, failed, ...numbers } of measured) {
    const model = shownText(numbers.model)
    const name = rows.has(model) ? model : nameOfSameModel(model, rows.keys())
    const row = rows.get(name) ?? { running: 0, waiting: 0, done, failed }
    const endedCounts = isServing ? { done, failed } : {}
    rows.delete(name)
    rows.set(model, { ...row, ...endedCounts, ...numbers, model })
  }
  return [...rows.values()]
}

/** A model that is a file has the name of the file, without `.gguf`, in the spans of requests. */
const nameOfSameModel = (model: string, rows: Iterable<string>): string =>
  [...rows].find((name) => shortName(name).replace(/\.gguf$/i, '') === model) ?? model

type ModelRow = InferencePanelView['models'][number]

function listModels({ columns, names: state, isRunning }: RunMoment): ModelRow[] {
  const prompts = names
    .show(state, { durations: false })
    .filter(({ taskType }) => taskType === 'ai')
  if (prompts.length === 0) return []
  const waiting = new Uint32Array(state.names.size)
  for (let task = 0; task < columns.tasks; task++) {
    const name = columns.name[task] ?? 0
    const passed = columns.passed[task] ?? 0
    if (isQueued(passed) && !hasEnded(passed)) waiting[name] = (waiting[name] ?? 0) + 1
  }
  return prompts.map(({ name, running, completed, failed }) => ({
    ...notMeasured,
    model: shownText(name),
    running: isRunning ? running : 0,
    waiting: isRunning ? (waiting[findText(state.names, name)] ?? 0) : 0,
    done: completed,
    failed,
  }))
}
