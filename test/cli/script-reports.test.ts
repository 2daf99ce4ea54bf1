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
  unnamed: 0,
}

describe('what a resume says before anything starts', () => {
  it('resume: counts what cannot be skipped, and does not count what --force may run', () => {
    const reasons = '1 failed, 2 done, but without a kept result or a uid of their own'
    expect(describeResume({ record, options: {} })).toBe(
      `skipping 17 of 20 recorded tasks; 3 run again: ${reasons}`,
    )
    expect(describeResume({ record, options: { changed: 'rerun' } })).toBe(
      `skipping up to 17 of 20 recorded tasks; 3 run again: ${reasons}; ` +
        'any skipped task runs again if it has changed',
    )
  })

  it('resume: does not promise to skip tasks that only what they are makes known', () => {
    const unnamed = { ...record, failed: 0, notKept: 0, unnamed: 3 }
    expect(describeResume({ record: unnamed, options: {} })).toBe(
      'skipping up to 19 of 19 recorded tasks; ' +
        'any skipped task without a uid of its own runs again if it has changed',
    )
  })

  it('resume: what may have changed is no part of the list of what runs again', () => {
    const mixed = { ...record, done: 3, canceled: 6, notKept: 0, unnamed: 3 }
    expect(describeResume({ record: mixed, options: {} })).toBe(
      'skipping up to 3 of 10 recorded tasks; 7 run again: 1 failed, 6 canceled; ' +
        'any skipped task without a uid of its own runs again if it has changed',
    )
    const none = { ...mixed, done: 0, unnamed: 0 }
    expect(describeResume({ record: none, options: { changed: 'rerun' } })).toBe(
      'skipping 0 of 7 recorded tasks; 7 run again: 1 failed, 6 canceled',
    )
  })
})
