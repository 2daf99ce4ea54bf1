/**
 * Runs tests against mutants, in a copy of the repository: a mutant survives if the tests nearest
 * to its file pass. A mutant may signal any process, so the tests have process ids of their own:
 * they cannot reach others, and nothing that they start outlives them.
 */

import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync } from 'node:fs'
import { rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join, posix, relative } from 'node:path'
import { importsOf, listPaths, readTree, type SourceFile } from '../../test/tidy/source-file.ts'
import { isQuick } from '../test-selection.ts'
import { type Mutant, mutantsOf } from './mutants.ts'
import { keyOf, unlistedOf } from './survivors.ts'

/** A mutant is tested with the first 6 test files. If it survives, with those up to 14, then 26. */
const stages = [6, 14, 26]
/** The maximum number of mutants per file, unless there are too few files. */
const maxOfFile = 3
/** A longer test fails. The mutant is the cause if half of the time is enough without it. */
const testMs = 60_000
/** The limit for all test files that run together. */
const limitMs = 4 * testMs

export interface MutationOptions {
  readonly root: string
  /** Folders or files, such as `src/core`. */
  readonly within: readonly string[]
  readonly count: number
  readonly seed: number
  /** No mutant starts after this time. */
  readonly minutes: number
  readonly print: (line: string) => void
}

export interface MutationResult {
  readonly killed: readonly Mutant[]
  readonly survived: readonly Mutant[]
}

/**
 * Samples mutants by the seed and runs those that are not listed, one after the other. If the
 * process is asked to end, ends the tests, removes the copy and rejects.
 */
export async function runMutants(options: MutationOptions): Promise<MutationResult> {
  const { root, within, count, seed, minutes, print } = options
  const files = readTree(root)
  const chosen = files.filter(({ path }) => within.some((one) => isBelow(path, one)))
  const drawn = sampleOf(chosen, count, seed)
  if (drawn.length === 0) throw new Error(`expected code below ${within.join(', ')}, found none`)
  const sample = unlistedOf(drawn)
  print(`seed ${seed}: ${drawn.length} mutants, ${drawn.length - sample.length} of them are listed`)
  const tests = files.map(({ path }) => path).filter((path) => path.endsWith('.test.ts'))
  // Determined once, because files of the working tree may change during the run.
  const quick = new Set(tests.filter((path) => isQuick(relative(process.cwd(), join(root, path)))))
  const until = performance.now() + minutes * 60_000
  const killed: Mutant[] = []
  const survived: Mutant[] = []
  using stop = new StopRequest()
  using copy = new MutationCopy(root, print, stop.signal)
  for (const [at, mutant] of sample.entries()) {
    if (performance.now() > until) break
    const killer = await copy.findKiller(mutant, testsFor(mutant.path, files, quick))
    const result = killer === null ? 'SURVIVED' : `killed by ${killer}`
    print(`[${at + 1}/${sample.length}] ${describeMutant(mutant)}\n    ${result}`)
    if (killer === null) survived.push(mutant)
    else killed.push(mutant)
  }
  return { killed, survived }
}

export const describeMutant = ({ path, line, within, before, after }: Mutant): string =>
  `${path}:${line} ${within}\n    - ${before}\n    + ${after}`

const isBelow = (path: string, folder: string): boolean =>
  path === folder || path.startsWith(`${folder}/`)

/**
 * Mutants of random files, those of one file together. The choice for a file depends only on the
 * seed and the file, so that a change elsewhere does not affect it.
 */
export function sampleOf(files: readonly SourceFile[], count: number, seed: number): Mutant[] {
  const code = files.filter((file) => mutantsOf(file).length > 0)
  const max = Math.max(maxOfFile, Math.ceil(count / code.length))
  const sample: Mutant[] = []
  for (const file of shuffled(code, seed, ({ path }) => path)) {
    const mutants = shuffled(mutantsOf(file), seed, keyOf)
    sample.push(...mutants.slice(0, Math.min(max, count - sample.length)))
  }
  return sample
}

function shuffled<Item>(
  items: readonly Item[],
  seed: number,
  nameOf: (item: Item) => string,
): Item[] {
  const rankOf = (item: Item): string => hash('sha256', `${seed} ${nameOf(item)}`)
  const ranked = items.map((item) => ({ item, rank: rankOf(item) }))
  return ranked.toSorted((one, other) => (one.rank < other.rank ? -1 : 1)).map(({ item }) => item)
}

/**
 * The test files that run a source file: its own first, then those of its folder, of the folders of
 * files that import it, and of others, by the number of imports between. Tests that start processes
 * come later, because they take long.
 */
export function testsFor(
  path: string,
  files: readonly SourceFile[],
  quick: ReadonlySet<string>,
): string[] {
  const importers = importersOf(files)
  const distances = new Map([[path, 0]])
  for (const [reached, distance] of distances) {
    for (const importer of importers.get(reached) ?? []) {
      if (!distances.has(importer)) distances.set(importer, distance + 1)
    }
  }
  const own = mirrorOf(path)
  const users = (importers.get(path) ?? []).filter((one) => one.startsWith('src/')).map(mirrorOf)
  const names = [posix.basename(path, '.ts'), posix.basename(posix.dirname(path))]
  // The tests of sessions also test `core` and `tasks`, through the public interface.
  const ofSession = own.replace(/^test\/(?:core|tasks)\//, 'test/session/')
  const rankOf = (test: string): number => {
    if (test === own) return -Infinity
    const shared = Math.max(
      sharedFolders(test, own),
      sharedFolders(test, ofSession),
      ...users.map((user) => sharedFolders(test, user) - 1),
    )
    const isNamesake = names.some((name) => posix.basename(test).startsWith(name))
    return (distances.get(test) ?? 0) - 2 * shared + (quick.has(test) || isNamesake ? 0 : 4)
  }
  const tests = [...distances.keys()].filter((one) => one.endsWith('.test.ts'))
  return tests.toSorted((one, other) => rankOf(one) - rankOf(other) || one.localeCompare(other))
}

const mirrorOf = (path: string): string =>
  path.replace(/^src\//, 'test/').replace(/\.ts$/, '.test.ts')

function sharedFolders(one: string, other: string): number {
  const [parts, others] = [one.split('/'), other.split('/')]
  const differs = parts.findIndex((part, at) => part !== others[at])
  return differs === -1 ? parts.length : differs
}

const importersByFiles = new WeakMap<readonly SourceFile[], Map<string, string[]>>()

function importersOf(files: readonly SourceFile[]): Map<string, string[]> {
  const known = importersByFiles.get(files)
  if (known !== undefined) return known
  const importers = new Map<string, string[]>()
  for (const file of files.filter(({ path }) => /^(?:src|test)\/.*\.ts$/.test(path))) {
    for (const target of targetsOf(file)) {
      importers.set(target, [...(importers.get(target) ?? []), file.path])
    }
  }
  importersByFiles.set(files, importers)
  return importers
}

/** The imports of a file, and the programs and fixtures that it starts or imports by their URL. */
function targetsOf(file: SourceFile): string[] {
  const imports = importsOf(file).filter(({ isType }) => !isType)
  const programs = file.text.matchAll(/siblingProgram\(import\.meta\.url, '([\w-]+)'/g)
  const urls = file.text.matchAll(/new URL\(\s*'([^']+\.ts)'/g)
  const named = [
    ...Array.from(programs, ([, name = '']) => `${name}.ts`),
    ...Array.from(urls, ([, name = '']) => name),
  ]
  const folder = posix.dirname(file.path)
  return [
    ...imports.flatMap(({ target }) => (target === null ? [] : [target])),
    ...named.map((name) => posix.join(folder, name)),
  ]
}

/** The part of vitest's JSON report that is read. */
interface TestReport {
  readonly success: boolean
  readonly testResults: readonly {
    readonly name: string
    readonly status: string
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[]
  }[]
}

interface Failure {
  /** The test file; `null` if it is not known. */
  readonly file: string | null
  readonly text: string
}

/** Aborts `signal` when this process is asked to end, or the process that forked it has ended. */
class StopRequest implements Disposable {
  readonly #controller = new AbortController()
  readonly #listeners = ['SIGINT', 'SIGTERM', 'disconnect'].map((event) => {
    const listener = (): void => this.#controller.abort(new Error(`stopped by ${event}`))
    process.on(event, listener)
    return { event, listener }
  })

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  [Symbol.dispose](): void {
    for (const { event, listener } of this.#listeners) process.off(event, listener)
  }
}

/** A copy of the repository in which one file at a time is changed. */
class MutationCopy implements Disposable {
  readonly #root: string
  readonly #folder: string
  readonly #print: (line: string) => void
  readonly #stop: AbortSignal
  /** Test files, or groups of files that run together, that pass without a mutant. */
  readonly #passing = new Set<string>()
  readonly #failing = new Set<string>()

  constructor(root: string, print: (line: string) => void, stop: AbortSignal) {
    this.#root = root
    this.#print = print
    this.#stop = stop
    mkdirSync(join(root, '.cache'), { recursive: true })
    this.#folder = mkdtempSync(join(root, '.cache', 'mutants-'))
    // Tests that switch to another user must be able to read it.
    chmodSync(this.#folder, 0o755)
    for (const path of listPaths(root)) {
      mkdirSync(dirname(join(this.#folder, path)), { recursive: true })
      cpSync(join(root, path), join(this.#folder, path))
    }
    for (const ignored of ['node_modules', '.models']) {
      if (existsSync(join(root, ignored))) {
        symlinkSync(join(root, ignored), join(this.#folder, ignored))
      }
    }
    // Copied, not linked, because a build of the working tree removes its files during the run.
    const build = join(root, 'dist')
    if (existsSync(build)) cpSync(build, join(this.#folder, 'dist'), { recursive: true })
  }

  [Symbol.dispose](): void {
    // Killed tests may still write for a moment.
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 9 })
  }

  /** The failure that the mutant caused, or `null`. */
  async findKiller(mutant: Mutant, tests: readonly string[]): Promise<string | null> {
    for (const [at, end] of stages.entries()) {
      const killer = await this.#killerAmong(tests.slice(stages[at - 1] ?? 0, end), mutant)
      if (killer !== null) return killer
    }
    return null
  }

  /** A failure counts only if the tests pass without the mutant, and fail with it again. */
  async #killerAmong(tests: readonly string[], mutant: Mutant): Promise<string | null> {
    const usable = tests.filter((test) => !this.#failing.has(test))
    if (usable.length === 0) return null
    const failure = await this.#failureWith(mutant, usable)
    if (failure === null) return null
    const suspects = failure.file === null ? usable : [failure.file]
    if (!(await this.#passWithoutMutant(suspects))) return await this.#killerAmong(tests, mutant)
    if ((await this.#failureWith(mutant, suspects)) !== null) return failure.text
    this.#print(`failed once, then passed with the same mutant: ${failure.text}`)
    const others = usable.filter((test) => !suspects.includes(test))
    return await this.#killerAmong(others, mutant)
  }

  async #failureWith(mutant: Mutant, tests: readonly string[]): Promise<Failure | null> {
    const path = join(this.#folder, mutant.path)
    const original = readFileSync(path)
    writeFileSync(path, mutant.text)
    try {
      return await this.#runTests(tests)
    } finally {
      writeFileSync(path, original)
    }
  }

  /** Whether the tests pass without a mutant. A file that fails is left out from then on. */
  async #passWithoutMutant(tests: readonly string[]): Promise<boolean> {
    const key = tests.join(' ')
    if (this.#passing.has(key)) return true
    // Allows half of the time. With the mutant, a timeout is then caused by the mutant.
    const failure = await this.#runTests(tests, 0.5)
    if (failure === null) {
      this.#passing.add(key)
      return true
    }
    if (failure.file === null) throw new Error(`without a mutant, ${key}: ${failure.text}`)
    this.#failing.add(failure.file)
    this.#print(`left out, because it fails without a mutant: ${failure.text}`)
    return false
  }

  async #runTests(tests: readonly string[], part = 1): Promise<Failure | null> {
    this.#stop.throwIfAborted()
    const reportPath = join(this.#folder, '.cache', 'report.json')
    rmSync(reportPath, { force: true })
    const vitest = join(this.#root, 'node_modules/vitest/vitest.mjs')
    const report = ['--reporter=json', `--outputFile=${reportPath}`]
    const limits = ['test', 'hook'].map((kind) => `--${kind}-timeout=${part * testMs}`)
    const options = ['run', '--bail=1', ...limits, ...report]
    const child = spawn('unshare', [...ownPids, process.execPath, vitest, ...options, ...tests], {
      cwd: this.#folder,
      env: plainEnvironment(),
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const endMs = part * limitMs
    const limit = AbortSignal.any([this.#stop, AbortSignal.timeout(endMs)])
    limit.addEventListener('abort', () => child.kill('SIGKILL'))
    const errors = child.stderr.setEncoding('utf8').toArray()
    const [code, signal] = await new Promise<[number | null, string | null]>((resolve, reject) => {
      child.on('error', reject).on('close', (...result) => resolve(result))
    })
    this.#stop.throwIfAborted()
    if (signal !== null) return { file: null, text: `the limit of ${endMs / 1000} s` }
    if (existsSync(reportPath)) {
      return failureIn(JSON.parse(readFileSync(reportPath, 'utf8')) as TestReport, tests)
    }
    return { file: null, text: `vitest ended with code ${code}: ${(await errors).join('')}` }
  }
}

/** Options of `unshare`. The processes see only each other, and end with the first one. */
const ownPids = [
  ...(process.getuid?.() === 0 ? [] : ['--user', '--map-current-user']),
  '--pid',
  '--fork',
  '--kill-child',
  '--mount-proc',
]

/** Omits variables of a surrounding test run, so that seeds are fixed and counts are small. */
function plainEnvironment(): NodeJS.ProcessEnv {
  const isOfRun = /^(?:VITEST|TUTTI_(?:LONG|SEED|LOADED_RESULTS|REQUIRE_ALL)$|NODE_COMPILE_CACHE$)/
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !isOfRun.test(name)))
}

function failureIn(report: TestReport, tests: readonly string[]): Failure | null {
  for (const { name, status, assertionResults } of report.testResults) {
    if (status === 'passed') continue
    const file = tests.find((test) => name.endsWith(`/${test}`)) ?? null
    const failed = assertionResults.find((one) => one.status === 'failed')
    return { file, text: `${file}: ${failed?.fullName ?? 'an error outside of its tests'}` }
  }
  return report.success ? null : { file: null, text: 'an error outside of the tests' }
}
