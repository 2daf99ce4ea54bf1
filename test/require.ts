/** For tests that need something from the system: without it they are skipped, or fail. */

import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { it, type TestContext } from 'vitest'

/** Something that a test cannot do without, and whether it is here. */
export interface Requirement {
  readonly isMet: boolean
  readonly reason: string
}

/** A requirement of any kind, such as `requirement(isRoot, 'needs root')`. */
export function requirement(isMet: boolean, reason: string): Requirement {
  return { isMet, reason }
}

/** A program on the PATH. */
export function requireCommand(command: string): Requirement {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const isMet = folders.some((folder) => folder !== '' && existsSync(join(folder, command)))
  return requirement(isMet, `needs the command "${command}"`)
}

/**
 * `it` for tests that need something: `needs(strace)('row 54: …', async () => { … })`. Where it is
 * missing the test is skipped with the reason; with `TUTTI_REQUIRE_ALL=1` it fails.
 */
export function needs(
  ...requirements: readonly Requirement[]
): (name: string, test: (context: TestContext) => unknown, timeoutMs?: number) => void {
  const missing = requirements.filter(({ isMet }) => !isMet).map(({ reason }) => reason)
  if (missing.length === 0) return (name, test, timeoutMs) => it(name, test, timeoutMs)
  const reason = missing.join('; ')
  return (name) => {
    it(name, (context) => {
      if (process.env['TUTTI_REQUIRE_ALL'] === '1') throw new Error(`Not run: ${reason}`)
      context.skip(reason)
    })
  }
}
