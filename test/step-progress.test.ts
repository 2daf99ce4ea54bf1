import { describe, expect, it } from 'vitest'
import { during, type StepOutput } from '../scripts/step-progress.mjs'

/** Runs a step until it has written that many times. */
async function written(times: number, output: Omit<StepOutput, 'write'>): Promise<string[]> {
  const texts: string[] = []
  const enough = Promise.withResolvers<string>()
  const write = (text: string): void => {
    if (texts.push(text) === times) enough.resolve('done')
  }
  let packages = 0
  const howFar = (): string => `${++packages} of 9 packages`
  expect(await during(enough.promise, 'installing', howFar, { ...output, write })).toBe('done')
  return texts
}

describe('a step of the setup', () => {
  it('a step of the setup logs how far it is and how long it has taken', async () => {
    const [first, ...further] = await written(3, {})
    expect(first).toBe('setup: installing\n')
    for (const [at, line] of further.entries()) {
      expect(line).toMatch(/^setup: installing, \d of 9 packages, \d+ s\n$/)
      expect(line).toContain(`, ${at + 1} of 9`)
    }
  })

  it('a step of the setup replaces its line in a terminal, and never wraps it', async () => {
    const [, line] = await written(2, { isTTY: true, columns: 25 })
    expect(line).toBe('\x1b[1A\x1b[2Ksetup: installing, 1 of \n')
    const [, unknown] = await written(2, { isTTY: true, columns: 0 })
    expect(unknown).toMatch(/1 of 9 packages, \d+ s\n$/)
  })

  it('a step of the setup that fails says no more', async () => {
    const texts: string[] = []
    const output = { write: (text: string) => texts.push(text) }
    const failing = during(Promise.reject(new Error('no')), 'building', undefined, output)
    await expect(failing).rejects.toThrow('no')
    expect(texts).toEqual(['setup: building\n'])
  })
})
