/**
 * The output of a test run: one line per file as it ends, every failure in full at the end, then
 * which tests did not run and why, and as the last line `N passed, N failed`.
 */

import { appendFileSync } from 'node:fs'
import {
  DefaultReporter,
  type TestCase,
  type TestModule,
  type TestSpecification,
  type TestSuite,
  type Vitest,
} from 'vitest/node'

/** The result of a run; `failed` counts everything that makes the run fail, not only tests. */
interface Tally {
  passed: number
  failed: number
  readonly notRun: string[]
}

type TestRunEnd = Parameters<DefaultReporter['onTestRunEnd']>

/** After this time without an ended file, the running files are printed. */
const quietMs = 20_000

/** With `TUTTI_REQUIRE_ALL=1` a test that did not run is a failure. */
class TestReporter extends DefaultReporter {
  #isFiltered = false
  #files = 0
  #ended = 0
  readonly #running = new Map<string, number>()
  #quietTimer: NodeJS.Timeout | undefined

  constructor() {
    super({ summary: false })
  }

  override onInit(vitest: Vitest): void {
    super.onInit(vitest)
    this.#isFiltered = vitest.config.testNamePattern !== undefined
  }

  override onTestRunStart(specifications: readonly TestSpecification[]): void {
    super.onTestRunStart(specifications)
    this.#files = specifications.length
    this.#ended = 0
    this.#quietTimer = setInterval(() => this.#nameRunning(), quietMs)
    this.#quietTimer.unref()
  }

  onTestModuleStart(module: TestModule): void {
    this.#running.set(module.relativeModuleId, performance.now())
  }

  override onTestRunEnd(...[modules, unhandledErrors, reason]: TestRunEnd): void {
    clearInterval(this.#quietTimer)
    super.onTestRunEnd(modules, unhandledErrors, reason)
    const tally: Tally = { passed: 0, failed: unhandledErrors.length, notRun: [] }
    for (const module of modules) count(module, tally)
    const isStrict = process.env['TUTTI_REQUIRE_ALL'] === '1'
    if (this.#isFiltered && !isStrict) tally.notRun.length = 0
    if (isStrict && tally.notRun.length > 0) {
      tally.failed += tally.notRun.length
      process.exitCode = 1
    }
    process.stdout.write(summary(tally, isStrict))
  }

  protected override printTestModule(module: TestModule): void {
    const file = module.relativeModuleId
    this.#running.delete(file)
    this.#ended++
    const result = module.ok() ? 'ok' : 'FAILED'
    const seconds = (module.diagnostic().duration / 1000).toFixed(1)
    this.#print(`${file}  ${result}  ${seconds} s`)
    for (const test of module.children.allTests('failed')) this.log(`          ${test.fullName}`)
    keepResult(file, module.ok())
    this.#quietTimer?.refresh()
  }

  #nameRunning(): void {
    const now = performance.now()
    const files = Array.from(this.#running, ([file, since]) => {
      return `${file} (${Math.round((now - since) / 1000)} s)`
    })
    if (files.length > 0) this.#print(`running: ${files.join(', ')}`)
  }

  #print(text: string): void {
    const width = String(this.#files).length
    this.log(`[${String(this.#ended).padStart(width)}/${this.#files}] ${text}`)
  }
}

// vitest loads a reporter by its default export.
export default TestReporter

/** Appends the result to the file that `npm run test:loaded` resumes from. */
function keepResult(file: string, isOk: boolean): void {
  const path = process.env['TUTTI_LOADED_RESULTS']
  if (path !== undefined) appendFileSync(path, `${JSON.stringify({ file, isOk })}\n`)
}

function count(module: TestModule, tally: Tally): void {
  // Errors outside of tests, such as in an import or a hook.
  if (module.errors().length > 0) tally.failed++
  for (const suite of module.children.allSuites()) tally.failed += hasOwnError(suite) ? 1 : 0
  for (const test of module.children.allTests()) {
    const { state } = test.result()
    if (state === 'passed') tally.passed++
    else if (state === 'failed') tally.failed++
    else tally.notRun.push(`${module.relativeModuleId} > ${test.fullName}: ${reasonOf(test)}`)
  }
}

const hasOwnError = (suite: TestSuite): boolean => suite.errors().length > 0

function reasonOf(test: TestCase): string {
  const result = test.result()
  const note = result.state === 'skipped' ? result.note : undefined
  if (note !== undefined) return note
  return test.options.mode === 'run' ? 'the run did not reach it' : `marked "${test.options.mode}"`
}

function summary(tally: Tally, isStrict: boolean): string {
  const { passed, failed, notRun } = tally
  const skipped = isStrict || notRun.length === 0 ? '' : `, ${notRun.length} skipped`
  const list = notRun.length === 0 ? '' : `Not run:\n  ${notRun.join('\n  ')}\n\n`
  return `${list}${passed} passed, ${failed} failed${skipped}\n`
}
