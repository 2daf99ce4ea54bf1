/** Requests, batches and speed of models. */

import type { InferencePanelView } from '../../protocol.ts'
import {
  countText,
  numberText,
  percentText,
  rateText,
  secondsText,
} from '../../../views/readable.ts'
import { Facts, FilteredPanel } from '../parts/panel.tsx'
import { countColumn, numberColumn, Table } from '../parts/table.tsx'
import { ChartRow, ChartTicks } from '../parts/time-chart.tsx'
import { safeText } from '../state/names.ts'

type Model = InferencePanelView['models'][number]

export function InferencePanel() {
  return (
    <FilteredPanel kind="inference" emptyText={emptyText}>
      {(view) => (
        <>
          {view.models.length === 0 ? null : (
            <Table
              caption="Models"
              columns={columns}
              rows={view.models}
              keyOf={({ model }) => model}
            />
          )}
          <Batches view={view} />
          <ServerFacts view={view} />
        </>
      )}
    </FilteredPanel>
  )
}

const emptyText = ({ models, batches, server }: InferencePanelView): string | null =>
  models.length === 0 && batches.count === 0 && server.length === 0
    ? 'No request for a model has been made.'
    : null

function Batches({ view: { batches, sizes, series } }: { readonly view: InferencePanelView }) {
  if (batches.count === 0) return null
  const { count, requests, waitSeconds, computeSeconds } = batches
  const max = sizes.reduce((a, { batches: one }) => Math.max(a, one), 1)
  return (
    <>
      <h3>Batches</h3>
      <p>
        {countText(count, 'batch', 'batches')} of {rateText(requests / count)} requests on average.
        Requests waited {secondsText(waitSeconds / Math.max(1, requests))} and were computed in{' '}
        {secondsText(computeSeconds / count)} per batch on average.
      </p>
      {sizes.length === 0 ? null : (
        <ul class="bars" aria-label="Sizes of batches">
          {sizes.map(({ upTo, batches: one }, at) => (
            <li key={upTo}>
              <span class="n">{rangeText((sizes[at - 1]?.upTo ?? 0) + 1, upTo)}</span>
              <span class="bar-track">
                <span class="c0" style={{ width: `${(100 * one) / max}%` }} />
              </span>
              <span class="n">{numberText(one)}</span>
            </li>
          ))}
        </ul>
      )}
      {series.length < 2 ? null : (
        <>
          <WaitChart series={series} />
          <ChartTicks />
        </>
      )}
    </>
  )
}

const rangeText = (from: number, to: number): string =>
  from === to ? numberText(to) : `${numberText(from)} to ${numberText(to)}`

function WaitChart({ series }: { readonly series: InferencePanelView['series'] }) {
  const perRequest = (of: 'waitSeconds' | 'computeSeconds'): (number | null)[] =>
    series.map((one) => (one.requests === 0 ? null : one[of] / one.requests))
  const [waits, computes] = [perRequest('waitSeconds'), perRequest('computeSeconds')]
  const lines = [
    { label: 'waiting', colour: 'c1', values: waits },
    { label: 'computing', colour: 'c0', values: computes },
  ]
  const max = [...waits, ...computes].reduce((a: number, b) => Math.max(a, b ?? 0), 0)
  return (
    <ChartRow
      title="Time per request"
      maxLabel={secondsText(max)}
      label="seconds of waiting and computing per request"
      times={series.map(({ time }) => time)}
      series={lines}
      height={84}
    >
      <ul class="values">
        {lines.map(({ label, colour }) => (
          <li key={label}>
            <i class={`swatch ${colour}`} />
            {label}
          </li>
        ))}
      </ul>
    </ChartRow>
  )
}

function ServerFacts({ view: { server } }: { readonly view: InferencePanelView }) {
  if (server.length === 0) return null
  return (
    <>
      <h3>Server</h3>
      <Facts facts={server} />
    </>
  )
}

const pairText = (pair: { readonly p50: number; readonly p95: number } | null): string =>
  pair === null ? '-' : `${secondsText(pair.p50)} / ${secondsText(pair.p95)}`
const rate = (value: number | null): string => (value === null ? '-' : rateText(value))
const share = (value: number | null): string => (value === null ? '-' : percentText(value))

const columns = [
  { title: 'model', cell: ({ model }: Model) => safeText(model, 80) },
  countColumn<Model>('running', ({ running }) => running),
  countColumn<Model>('waiting', ({ waiting }) => waiting),
  countColumn<Model>('done', ({ done }) => done),
  countColumn<Model>('failed', ({ failed }) => failed),
  numberColumn<Model>('first token p50 / p95', ({ ttft }) => pairText(ttft)),
  numberColumn<Model>('between tokens p50 / p95', ({ betweenTokens }) => pairText(betweenTokens)),
  numberColumn<Model>('prompt tokens/s', ({ promptTokensPerSecond }) =>
    rate(promptTokensPerSecond),
  ),
  numberColumn<Model>('answer tokens/s', ({ answerTokensPerSecond }) =>
    rate(answerTokensPerSecond),
  ),
  numberColumn<Model>('cache used', ({ cacheUse }) => share(cacheUse)),
  numberColumn<Model>('prefix hits', ({ prefixHits }) => share(prefixHits)),
]
