/**
 * Which test files start a process, a thread, a server or a timer. `npm run test:quick` skips them,
 * `npm run test:loaded` runs only them. Determined by the text of a test file and of the test
 * helpers that it imports, so that a new test needs no entry in a list.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { dirname, posix } from 'node:path'

/** Modules, classes and functions that start something or wait for real time. */
const starters = [
  'node:child_process',
  'node:worker_threads',
  'node:cluster',
  'node:net',
  'node:http',
  'node:timers',
  'dist/',
  'step-progress.mjs',
  'startLocalCluster',
  'systemClock',
  'setTimeout',
  'setInterval',
  'ConcurrentBackend',
  'ProcessEngine',
  'LlamaEngine',
  'InferenceBackend',
  'InferenceService',
]

/** Classes with their own timers, which a quick test may use with a fake backend. */
const timers = ['new Session(', 'new TelemetryManager(', 'WorkflowEngine']

/** The tidy tests contain these words only to search for them. */
const isRule = (path: string): boolean => path.startsWith('test/tidy')

/** Every test file, sorted. Paths are relative to the repository's root. */
export function testFiles(): string[] {
  const names = readdirSync('test', { recursive: true, encoding: 'utf8' })
  const tests = names.filter((name) => name.endsWith('.test.ts'))
  return tests.map((name) => posix.join('test', name.replaceAll('\\', '/'))).toSorted()
}

/** Whether the test belongs to `npm run test:quick`; excludes tests with large counts as well. */
export function isQuick(path: string): boolean {
  const hasCounts = readFileSync(path, 'utf8').includes('byRun(')
  return !hasCounts && !mentions(path, starters, new Set())
}

/** Whether the test belongs to `npm run test:loaded`. */
export function startsSomething(path: string): boolean {
  return mentions(path, [...starters, ...timers], new Set())
}

/** Whether the file, or a helper below `test/` that it imports, contains one of the words. */
function mentions(path: string, words: readonly string[], seen: Set<string>): boolean {
  if (seen.has(path) || isRule(path)) return false
  seen.add(path)
  const text = readFileSync(path, 'utf8')
  if (words.some((word) => text.includes(word))) return true
  const imports = Array.from(text.matchAll(/from '(\.[^']+)'/g), ([, name = '']) =>
    posix.join(dirname(path), name),
  )
  return imports.some((name) => name.startsWith('test/') && mentions(name, words, seen))
}
