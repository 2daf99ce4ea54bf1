import { describe, expect, it } from 'vitest'
import { describeResume } from '../../src/cli/run/script-reports.ts'

const record = {
  sessionId: 's',
  files: [],
  done: 19,
  failed: 1,
  canceled: 0,
  unfinished: 0,
  notKept: 2,
}

describe('what a resume says before anything starts', () => {
  it('resume: counts what cannot be skipped, and does not count what --force may run', () => {
    const reasons = '1 failed, 2 done, but not kept or not known again'
    expect(describeResume({ record, options: {} })).toBe(
      `skipping 17 of 20 recorded tasks; 3 run again: ${reasons}`,
    )
    expect(describeResume({ record, options: { changed: 'rerun' } })).toBe(
      'skipping up to 17 of 20 recorded tasks; at least 3 run again: ' +
        `${reasons}, all that have changed`,
    )
  })
})
