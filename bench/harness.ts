/**
 * What every bench needs: medians over processes of their own, and a table that can be pasted into
 * docs/performance.md.
 */

import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** What one run of a mode gives: numbers by name. */
export type Numbers = Readonly<Record<string, number>>

/** Runs modes of a program in turns, each run a process; the medians of what each mode gave. */
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

/** For a program with modes: runs the one that it was started with, and tells its numbers. */
export async function runMode(
  url: string,
  modes: Readonly<Record<string, () => Promise<object>>>,
): Promise<void> {
  const [, program, name = ''] = process.argv
  const mode = program === fileURLToPath(url) ? modes[name] : undefined
  if (mode !== undefined) process.stdout.write(`${JSON.stringify(await mode())}\n`)
}

/** The seconds that it took. */
export async function timed(run: () => Promise<unknown>): Promise<number> {
  const from = performance.now()
  await run()
  return (performance.now() - from) / 1000
}

export function median(values: readonly number[]): number {
  const sorted = [...values].toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

/** Prints a Markdown table. */
export function table(
  heads: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |\n`
  process.stdout.write(line(heads) + line(heads.map(() => '---')) + rows.map(line).join(''))
}
