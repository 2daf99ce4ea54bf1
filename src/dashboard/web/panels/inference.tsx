/** Requests, batches and speed of models. */

import type { InferencePanelView } from '../../protocol.ts'
import {
  countText,
  numberText,
  percentText,
  rateText,
  secondsText,
} from '../../../views/readable.ts'
import { PanelBody } from '../parts/panel.tsx'
import { Table } from '../parts/table.tsx'
import { TimeChart } from '../parts/time-chart.tsx'
import { safeText } from '../state/names.ts'
import { filter, useView } from '../state/views.ts'

type Model = InferencePanelView['models'][number]

export function InferencePanel() {
  const limits = filter.value
  const state = useView('inference', limits === null ? null : { kind: 'inference', filter: limits })
  return (
    <PanelBody state={state} emptyText={emptyText}>
      {(view) => (
        <>
          {view.models.length === 0 ? null : (
            <Table
              caption="Models"
              isCaptionHidden
              columns={columns}
              rows={view.models}
              keyOf={({ model }) => model}
            />
          )}
          <Batches view={view} />
          <ServerFacts view={view} />
        </>
      )}
    </PanelBody>
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
      {series.length < 2 ? null : <WaitChart series={series} />}
    </>
  )
}

const rangeText = (from: number, to: number): string =>
  from === to ? numberText(to) : `${numberText(from)} to ${numberText(to)}`

function WaitChart({ series }: { readonly series: InferencePanelView['series'] }) {
  const perRequest = (of: 'waitSeconds' | 'computeSeconds'): (number | null)[] =>
    series.map((one) => (one.requests === 0 ? null : one[of] / one.requests))
  const [waits, computes] = [perRequest('waitSeconds'), perRequest('computeSeconds')]
  const max = [...waits, ...computes].reduce((a: number, b) => Math.max(a, b ?? 0), 0)
  return (
    <div class="chart-row">
      <div class="chart-label">
        <strong>Time per request</strong>
        <ul class="values">
          <li>
            <i class="swatch c1" />
            waiting
          </li>
          <li>
            <i class="swatch c0" />
            computing
          </li>
        </ul>
      </div>
      <div class="chart-plot">
        <span class="scale">{secondsText(max)}</span>
        <TimeChart
          label="seconds of waiting and computing per request"
          times={series.map(({ time }) => time)}
          series={[
            { label: 'waiting', colour: 'c1', values: waits },
            { label: 'computing', colour: 'c0', values: computes },
          ]}
          height={84}
        />
      </div>
    </div>
  )
}

function ServerFacts({ view: { server } }: { readonly view: InferencePanelView }) {
  if (server.length === 0) return null
  return (
    <>
      <h3>Server</h3>
      <dl class="facts">
        {server.map(({ title, value }) => (
          <div key={title}>
            <dt>{safeText(title)}</dt>
            <dd>{safeText(value)}</dd>
          </div>
        ))}
      </dl>
    </>
  )
}

const pairText = (pair: { readonly p50: number; readonly p95: number } | null): string =>
  pair === null ? '-' : `${secondsText(pair.p50)} / ${secondsText(pair.p95)}`
const rate = (value: number | null): string => (value === null ? '-' : rateText(value))
const share = (value: number | null): string => (value === null ? '-' : percentText(value))
const column = (title: string, cell: (model: Model) => string) => ({ title, isNumber: true, cell })

const columns = [
  { title: 'model', cell: ({ model }: Model) => safeText(model, 80) },
  column('running', ({ running }) => numberText(running)),
  column('waiting', ({ waiting }) => numberText(waiting)),
  column('done', ({ done }) => numberText(done)),
  column('failed', ({ failed }) => numberText(failed)),
  column('first token p50 / p95', ({ ttft }) => pairText(ttft)),
  column('between tokens p50 / p95', ({ betweenTokens }) => pairText(betweenTokens)),
  column('prompt tokens/s', ({ promptTokensPerSecond }) => rate(promptTokensPerSecond)),
  column('answer tokens/s', ({ answerTokensPerSecond }) => rate(answerTokensPerSecond)),
  column('cache used', ({ cacheUse }) => share(cacheUse)),
  column('prefix hits', ({ prefixHits }) => share(prefixHits)),
]
