/** The last lines of a test run: which tests did not run and why, then `N passed, N failed`. */

import type { Reporter, TestCase, TestModule, TestSuite } from 'vitest/node'

/** What a run came to; `failed` counts everything that makes the run fail, not only tests. */
interface Tally {
  passed: number
  failed: number
  readonly notRun: string[]
}

/** With `TUTTI_REQUIRE_ALL=1` a test that did not run is a failure. */
class SummaryReporter implements Reporter {
  #isFiltered = false

  onInit: NonNullable<Reporter['onInit']> = (vitest) => {
    this.#isFiltered = vitest.config.testNamePattern !== undefined
  }

  onTestRunEnd: NonNullable<Reporter['onTestRunEnd']> = (modules, unhandledErrors) => {
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
}

// vitest loads a reporter by its default export.
export default SummaryReporter

function count(module: TestModule, tally: Tally): void {
  // Errors of a file or a suite itself (an import, a hook) belong to no test.
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
