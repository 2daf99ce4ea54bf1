/** `tutti bench`: measures an inference server under the load of many clients. */

import { randomInt } from 'node:crypto'
import { countText, numberText, rateText, secondsText } from '../../views/readable.ts'
import { type DurationStats, durationStats } from '../../views/stats.ts'
import { exitCodes, stopOnSignal } from '../exit.ts'
import type { Output } from '../output.ts'
import { findModel, readApiKey, toBase } from '../program/server-model.ts'
import { type Column, tableLines } from '../reading/text.ts'
import { type Load, runLoad } from './load.ts'
import type { SurfaceName } from './surfaces.ts'

export interface BenchOptions {
  readonly clients: number
  readonly requests: number
  readonly promptTokens: number
  readonly maxTokens: number
  readonly surface: SurfaceName
  readonly model?: string
  /** The maximum time of a request in seconds. */
  readonly timeout: number
  readonly apiKeyFile?: string
}

/** Exits with 1 if a request failed, and with 3 if no server answers at the address. */
export async function bench(address: string, options: BenchOptions, output: Output) {
  const base = toBase(address, 'url')
  const apiKey = readApiKey(options.apiKeyFile)
  const stop = stopOnSignal(output.closed)
  try {
    const model = options.model ?? (await findModel(base, apiKey, stop.signal))
    const load = await runLoad({
      ...options,
      base,
      model,
      apiKey,
      timeoutSeconds: options.timeout,
      toPrompt: createPrompts(options.promptTokens),
      signal: stop.signal,
      onEnd: showProgress(options.requests, output),
    })
    const about = { model, surface: options.surface, clients: options.clients }
    const stats = measureLoad(load)
    output.result({ ...about, ...resultFields(load, stats) }, [
      ...headLines(about, load),
      ...timeLines(stats, output.width),
      ...chartLines(load.firstToken),
      ...errorLines(load),
    ])
    if (stop.signal.aborted) return await stop.exitCode()
    return load.failed > 0 ? exitCodes.tasksFailed : exitCodes.ok
  } catch (error) {
    if (!stop.signal.aborted) throw error
    return await stop.exitCode()
  } finally {
    stop.release()
  }
}

const words =
  'the sun is red and a dog can see the big sea from a ship at the end of the day'.split(' ')

/**
 * Returns prompts of about `tokens` tokens: common words, which most tokenizers keep whole. Every
 * prompt of this and other runs begins differently, so that no server can reuse a cached prefix.
 */
function createPrompts(tokens: number): (index: number) => string {
  const start = randomInt(1e9)
  return (index) => {
    const rest = Array.from(
      { length: Math.max(0, tokens - 1) },
      (_, at) => words[at % words.length],
    )
    return [start + index, ...rest].join(' ')
  }
}

interface LoadStats {
  readonly firstToken: DurationStats
  readonly betweenTokens: DurationStats
  readonly wholeAnswer: DurationStats
}

const measureLoad = (load: Load): LoadStats => ({
  firstToken: durationStats(load.firstToken),
  betweenTokens: durationStats(load.betweenTokens),
  wholeAnswer: durationStats(load.wholeAnswer),
})

const perSecond = (count: number, { seconds }: Load): number => (seconds > 0 ? count / seconds : 0)

/**
 * Returns a function that shows the progress: continuously in a terminal, else every few seconds.
 */
function showProgress(requests: number, output: Output): (load: Load) => void {
  const interval = output.terminal?.isTTY === true ? 0.1 : 5
  let shown = 0
  return (load) => {
    if (load.seconds - shown < interval) return
    shown = load.seconds
    output.progress([progressLine(load, requests)])
  }
}

function progressLine(load: Load, requests: number): string {
  const endedCount = load.answered + load.failed
  const failed = load.failed > 0 ? `, ${load.failed} failed` : ''
  const rate = rateText(perSecond(load.answerTokens, load))
  return `${numberText(endedCount)} of ${countText(requests, 'request')}${failed}, ${rate} tokens/s`
}

function resultFields(load: Load, { firstToken, betweenTokens, wholeAnswer }: LoadStats): object {
  const quantiles = ({ p50, p95 }: DurationStats): object => ({ p50, p95 })
  return {
    requests: load.answered + load.failed,
    failed: load.failed,
    seconds: load.seconds,
    tokens_per_second: perSecond(load.answerTokens, load),
    prompt_tokens: load.promptTokens,
    completion_tokens: load.answerTokens,
    ttft_seconds: quantiles(firstToken),
    between_tokens_seconds: quantiles(betweenTokens),
    answer_seconds: quantiles(wholeAnswer),
    errors: Array.from(load.errors, ([message, count]) => ({ message, count })),
  }
}

interface BenchSubject {
  readonly model: string
  readonly surface: SurfaceName
  readonly clients: number
}

function headLines({ model, surface, clients }: BenchSubject, load: Load): string[] {
  const { answered, failed, seconds, promptTokens, answerTokens } = load
  const mean = (tokens: number): string => rateText(answered === 0 ? 0 : tokens / answered)
  return [
    `${model} (${surface})`,
    `requests  ${numberText(answered)} answered, ${numberText(failed)} failed, ` +
      `${countText(clients, 'client')}, ${secondsText(seconds)}`,
    `tokens    ${mean(promptTokens)} per prompt, ${mean(answerTokens)} per answer`,
    `rate      ${rateText(perSecond(answered, load))} requests/s, ` +
      `${rateText(perSecond(answerTokens, load))} tokens/s`,
  ]
}

function timeLines(stats: LoadStats, width: number): string[] {
  const rows = [
    { name: 'first token', stats: stats.firstToken },
    { name: 'between tokens', stats: stats.betweenTokens },
    { name: 'whole answer', stats: stats.wholeAnswer },
  ].filter((row) => row.stats.max > 0)
  if (rows.length === 0) return []
  const keys = ['p50', 'p95', 'max'] as const
  const columns: Column<(typeof rows)[number]>[] = [
    { head: 'time', cell: ({ name }) => name },
    ...keys.map((head) => ({
      head,
      isNumber: true,
      cell: (row: (typeof rows)[number]) => secondsText(row.stats[head]),
    })),
  ]
  return ['', ...tableLines(columns, rows, width)]
}

const chartRows = 8
const barWidth = 40

function chartLines(times: readonly number[]): string[] {
  if (times.length < 2) return []
  const [min, max] = times.reduce(
    ([low, high], time) => [Math.min(low, time), Math.max(high, time)],
    [Infinity, -Infinity],
  )
  const step = (max - min) / chartRows
  if (step === 0) return []
  const counts = Array.from({ length: chartRows }, () => 0)
  for (const time of times) {
    const at = Math.min(chartRows - 1, Math.floor((time - min) / step))
    counts[at] = (counts[at] ?? 0) + 1
  }
  const most = Math.max(...counts)
  const labels = counts.map((_, at) => `from ${secondsText(min + at * step)}`)
  const labelWidth = Math.max(...labels.map(({ length }) => length))
  return [
    '',
    'time to the first token',
    ...counts.map((count, at) => {
      const bar = '█'.repeat(Math.ceil((count / most) * barWidth))
      return `  ${(labels[at] ?? '').padEnd(labelWidth)}  ${bar}${bar === '' ? '' : ' '}${count}`
    }),
  ]
}

const errorLines = ({ errors }: Load): string[] =>
  errors.size === 0
    ? []
    : [
        '',
        ...Array.from(errors, ([text, count]) => `${countText(count, 'request')} failed: ${text}`),
      ]
