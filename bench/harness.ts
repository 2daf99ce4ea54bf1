/** Common code of the benchmarks: medians over separate processes, and Markdown tables. */

import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** The numbers that one run of a mode prints, by name. */
export type Numbers = Readonly<Record<string, number>>

/** Runs the modes of a program alternately, each run in a new process; returns the medians. */
export function measureModes(program: URL, names: readonly string[], runs: number) {
  const found = new Map<string, Numbers[]>(names.map((name) => [name, []]))
  for (let run = 0; run < runs; run++) {
    for (const name of names) {
      const args = ['--expose-gc', fileURLToPath(program), name]
      const output = execFileSync(process.execPath, args, { encoding: 'utf8' })
      found.get(name)?.push(JSON.parse(output.trim().split('\n').at(-1) ?? '') as Numbers)
    }
  }
  return (name: string, key: string): number =>
    median((found.get(name) ?? []).map((one) => one[key] ?? Number.NaN))
}

/** The label of a row, the two compared modes, the compared number, and the wanted ratio. */
export type ComparedRow = readonly [
  text: string,
  mode: string,
  baseline: string,
  key: string,
  wanted: string,
]

/** Measures the modes of all rows, interleaved, and prints the medians and their ratios. */
export function compareModes(
  program: URL,
  name: string,
  rows: readonly ComparedRow[],
  runs: number,
): void {
  const modes = [...new Set(rows.flatMap(([, mode, baseline]) => [mode, baseline]))]
  const of = measureModes(program, modes, runs)
  const round = (value: number): number => Number(value.toPrecision(3))
  table(
    ['', name, 'baseline', 'ratio', 'wanted'],
    rows.map(([text, mode, baseline, key, wanted]) => {
      const [one, other] = [of(mode, key), of(baseline, key)]
      return [text, round(one), round(other), round(one / other), wanted]
    }),
  )
}

/** Runs the mode named on the command line, and prints its numbers. */
export async function runMode(
  url: string,
  modes: Readonly<Record<string, () => Promise<object>>>,
): Promise<void> {
  const [, program, name = ''] = process.argv
  const mode = program === fileURLToPath(url) ? modes[name] : undefined
  if (mode !== undefined) process.stdout.write(`${JSON.stringify(await mode())}\n`)
}

/** The duration in seconds. */
export async function timed(run: () => Promise<unknown>): Promise<number> {
  const from = performance.now()
  await run()
  return (performance.now() - from) / 1000
}

export function median(values: readonly number[]): number {
  const sorted = [...values].toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

export function table(
  heads: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |\n`
  process.stdout.write(line(heads) + line(heads.map(() => '---')) + rows.map(line).join(''))
}
