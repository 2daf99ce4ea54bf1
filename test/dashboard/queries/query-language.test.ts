import { expect, it } from 'vitest'
import { parseQuery } from '../../../src/dashboard/queries/tasks/query-language.ts'

/** Which texts the only condition of a query selects. */
function select(q: string, texts: readonly string[]): string[] {
  const { texts: conditions, problem } = parseQuery(q)
  expect([problem, conditions.length]).toEqual(['', 1])
  return texts.filter((text) => conditions[0]?.matches(text) !== conditions[0]?.isNegated)
}

it('a query finds parts of texts, whatever their case', () => {
  expect(select('name:SIM', ['simulate', 'train'])).toEqual(['simulate'])
  expect(select('-name:sim', ['simulate', 'train'])).toEqual(['train'])
  expect(select('"two words"', ['one two words', 'two'])).toEqual(['one two words'])
})

it('a query finds patterns between slashes, which may contain spaces', () => {
  expect(select('name:/^sim.* x/', ['simulate x', 'a sim x'])).toEqual(['simulate x'])
  expect(select('/a\\/b/', ['a/b', 'ab'])).toEqual(['a/b'])
})

it('a query compares durations with units', () => {
  const matches = (q: string, value: number): boolean =>
    parseQuery(q).numbers.every((condition) => condition.matches(value))
  expect(parseQuery('dur>2s').numbers.map(({ key }) => key)).toEqual(['dur'])
  expect([matches('dur>2s', 3), matches('dur>2s', 2)]).toEqual([true, false])
  expect([matches('waited>=1.5m', 90), matches('ran<500ms', 0.6)]).toEqual([true, false])
  expect(matches('dur>1s dur<2s', 3)).toBe(false)
  expect(matches('dur>0s', Number.NaN)).toBe(false)
})

it('a query that cannot be used says which part is wrong, and selects nothing by it', () => {
  const problems = [
    ['nmae:x', '"nmae": the keys are'],
    ['dur:2s', 'dur:2s: write it as dur>2s'],
    ['dur>fast', 'dur>fast: write it as'],
    ['name:/(/', '/(/: '],
    ['name:/(?<=a)b/', '/(?<=a)b/: '],
    [`name:/${'a'.repeat(300)}/`, 'a pattern has at most 200 characters'],
    ['a '.repeat(600), 'a query has at most 1000 characters'],
  ] as const
  for (const [q, problem] of problems) {
    expect(parseQuery(q).problem, q).toContain(problem)
    expect(parseQuery(q), q).toMatchObject({ texts: [], numbers: [] })
  }
})

it('row 130: a pattern that would take minutes for a single text is refused', () => {
  for (const pattern of [
    '(.?){999}'.repeat(20),
    'x{0,1000}'.repeat(20),
    'x{900,}'.repeat(20),
    '((a?){30}){30}',
  ]) {
    expect(parseQuery(`/${pattern}/`).problem, pattern).toContain('fewer repetitions')
  }
  expect(parseQuery('/^run-[0-9a-f]{8}(-[0-9a-f]{4}){3}$/').problem).toBe('')
})

it('a query of any characters never throws', () => {
  for (const q of [
    '',
    '   ',
    '-',
    ':',
    'name:',
    '//',
    '/',
    '"',
    '"a',
    'a:b:c',
    '\u202E name:x',
    '\\',
  ]) {
    expect(() => parseQuery(q), q).not.toThrow()
  }
})

it('a pattern that would backtrack exponentially takes linear time', () => {
  const { texts } = parseQuery('name:/(a+)+$/')
  expect(texts[0]?.matches(`${'a'.repeat(900)}b`)).toBe(false)
})
