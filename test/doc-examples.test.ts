/** The `@example` blocks of the doc comments compile, all of them in one run of the compiler. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import * as cluster from '../src/cluster/index.ts'
import * as dashboard from '../src/dashboard/index.ts'
import * as hpc from '../src/hpc/index.ts'
import * as library from '../src/index.ts'
import * as inference from '../src/inference/index.ts'
import * as testing from '../src/testing/index.ts'
import * as workflow from '../src/workflow/index.ts'
import { codeIn, readTree } from './tidy/source-file.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

/** The types of the built package are what users get, and much less to check. */
const entries = {
  'dist/index.js': library,
  'dist/workflow/index.js': workflow,
  'dist/inference/index.js': inference,
  'dist/cluster/index.js': cluster,
  'dist/hpc/index.js': hpc,
  'dist/dashboard/index.js': dashboard,
  'dist/testing/index.js': testing,
}

/** Names that examples use without declaring them, each with its declaration. */
const given: Readonly<Record<string, string>> = {
  assert: `import assert from 'node:assert'`,
  backend: `declare const backend: import('dist/index.js').Backend`,
  compute: `declare function compute(step: number): void`,
  emitTwoEvents: `declare function emitTwoEvents(sink: object): void`,
  failures: `import { failures } from 'src/views/panels/failures.ts'`,
  MyBackend: `declare const MyBackend: { create(): Promise<import('dist/index.js').Backend> }`,
  MyEngine: `declare const MyEngine: new () => import('dist/inference/index.js').InferenceEngine`,
  names: `import { names } from 'src/views/panels/names.ts'`,
  Pass: `import { Pass } from 'src/views/pass.ts'`,
  path: `declare const path: string`,
  readCheckpoint: `import { readCheckpoint } from 'src/checkpoint/reader.ts'`,
  ResponseFormat: `import type { ResponseFormat } from 'dist/index.js'`,
  session: `declare const session: import('dist/index.js').Session`,
  square: `declare const square: (x: number) => number`,
  tasks: `declare const tasks: import('dist/index.js').ComputeTask[]`,
  telemetry: `declare const telemetry: import('dist/index.js').TelemetryManager`,
}

interface Example {
  /** The line in the source where it begins. */
  readonly where: string
  readonly code: string
}

function examplesIn(path: string, text: string): Example[] {
  return [...text.matchAll(/^( *)\* @example\n((?:\1\*.*\n)*?)(?=\1\*\/|\1\* @)/gm)].map(
    (found) => {
      const [, indent = '', block = ''] = found
      const line = text.slice(0, found.index).split('\n').length + 1
      const code = block.replaceAll(new RegExp(`^${indent}\\* ?`, 'gm'), '')
      return { where: `${path}:${line}`, code }
    },
  )
}

/** A module of its own: what it uses and does not declare is imported or given. */
function toModule({ code }: Example): string {
  const isDeclared = (name: string): boolean =>
    new RegExp(`\\b(?:const|let|function|class|using|import \\{) ${name}\\b`).test(code)
  const used = new Set(code.replaceAll(/'[^'\n]*'|\/\/.*/g, '').match(/(?<![.\w])[A-Za-z]\w*/g))
  const isFree = (name: string): boolean => used.has(name) && !isDeclared(name)
  const imports = Object.entries(entries).flatMap(([path, entry]) => {
    const taken = Object.keys(entry).filter(isFree)
    return taken.length === 0 ? [] : [`import { ${taken.join(', ')} } from '${path}'`]
  })
  const others = Object.keys(given)
    .filter(isFree)
    .map((name) => given[name] ?? '')
  const head = [...imports, ...others].join('\n').replaceAll(/'(?=src|dist)/g, `'../../`)
  const own = code.match(/^import .*$/gm) ?? []
  const body = code.replaceAll(/^import .*$/gm, '').replaceAll(/^export /gm, '')
  return `${head}\n${own.join('\n')}\nexport async function example() {\n${body}}\n`
}

it('every example of a doc comment compiles', () => {
  const files = codeIn(readTree(root), 'src')
  const examples = files.flatMap(({ path, text }) => examplesIn(path, text))
  const count = files.reduce((sum, { text }) => sum + text.split('* @example\n').length - 1, 0)
  expect([examples.length, count > 20]).toEqual([count, true])
  expect(problemsOf(examples)).toEqual([])
})

it('an example with a wrong option, or a name that nobody has, is named by its line', () => {
  const text = `/**
 * A class.
 *
 * @example
 * const task = new ComputeTask({ executabel: 'date' })
 * await session.submitTasks([task, other])
 */`
  const problems = problemsOf(examplesIn('src/a.ts', text))
  expect(problems.map((line) => line.replace(/\(.*/, ''))).toEqual(['src/a.ts:5', 'src/a.ts:5'])
  expect(problems.join()).toMatch(/executabel.*'other'/s)
})

function problemsOf(examples: readonly Example[]): string[] {
  // Packages are found from there.
  const folder = mkdtempSync(join(root, 'node_modules', '.doc-examples-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  for (const [at, example] of examples.entries()) {
    writeFileSync(join(folder, `example-${at}.ts`), toModule(example))
  }
  const compilerOptions = {
    noUnusedLocals: false,
    noImplicitReturns: false,
    rewriteRelativeImportExtensions: false,
  }
  const config = { extends: join(root, 'tsconfig.json'), compilerOptions, include: ['*.ts'] }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ ...config, exclude: [] }))
  const where = (at: string): string => examples[Number(at)]?.where ?? ''
  return compile(folder)
    .filter((line) => /^\S/.test(line))
    .map((line) => line.replace(/^.*?example-(\d+)\.ts/, (_, at: string) => where(at)))
}

/** The lines that the compiler prints. */
function compile(folder: string): string[] {
  const tsc = join(root, 'node_modules', '.bin', 'tsc')
  try {
    execFileSync(tsc, ['-p', relative(root, folder), '--pretty', 'false'], {
      cwd: root,
      encoding: 'utf8',
    })
    return []
  } catch (error) {
    if (!(error instanceof Error) || !('stdout' in error)) throw error
    return String(error.stdout).split('\n').filter(Boolean)
  }
}
