import { parseSync } from 'oxc-parser'
import { describe, expect, it } from 'vitest'
import { readTree } from './tidy/source-file.ts'
import { mutantsOf } from '../scripts/mutation/mutants.ts'
import { keyOf, mutatedFolders, survivors } from '../scripts/mutation/survivors.ts'

/** `before → after` of each mutant of a text. */
const changesOf = (text: string): string[] =>
  mutantsOf({ path: 'src/a.ts', text }).map(({ before, after }) => `${before} → ${after}`)

describe('mutants of a file', () => {
  it('mutants leave out each operand of a logical expression', () => {
    expect(changesOf('use(a && b ?? c)')).toEqual([
      'use(a && b ?? c) → ;',
      'a && b ?? c → a && b',
      'a && b ?? c → c',
      'a && b → a',
      'a && b → b',
    ])
  })

  it('mutants move the boundary of a comparison and swap signs, but not those of a loop', () => {
    expect(changesOf('for (let i = 0; i < n; i++) x = i - 1')).toEqual([
      'i < n → i <= n',
      'i - 1 → i + 1',
    ])
    expect(changesOf('count--')).toEqual(['count-- → count++'])
    expect(changesOf('count += 2')).toEqual(['count += 2 → count -= 2'])
  })

  it('mutants negate conditions once, and leave out guards', () => {
    expect(changesOf('const f = () => { if (a) return 1\n if (!b) c = 1 }')).toEqual([
      'a → !(a)',
      'a → false',
      '!b → b',
    ])
    expect(changesOf('const x = a === 1 ? b : c')).toEqual(['a === 1 → a !== 1'])
  })

  it('mutants leave out calls whose result is not used, except that of the super class', () => {
    expect(changesOf('async () => { await close(); void run(); x = get() }')).toEqual([
      'await close(); → ;',
      'void run(); → ;',
    ])
    expect(changesOf('class A extends B { constructor() { super() } }')).toEqual([])
  })

  it('mutants return constants from functions that return a boolean', () => {
    const text = 'const isIt = (a: A): a is B => check(a)\nfunction has(): boolean { return a.b }'
    expect(changesOf(text)).toEqual([
      'check(a) → true',
      'check(a) → false',
      'a.b → true',
      'a.b → false',
    ])
  })

  it('mutants swap boolean constants, each with what is around it', () => {
    const text = 'const f = () => { g = { a: false, b: c ?? true }\n return true }'
    expect(changesOf(text)).toEqual([
      'a: false → a: true',
      'c ?? true → c',
      'c ?? true → true',
      'c ?? true → c ?? false',
      'return true → return false',
    ])
  })

  it('mutants do not touch types', () => {
    expect(changesOf('type A = { a: true } | false\nlet b: A | false')).toEqual([])
    expect(changesOf('let b = true as const')).toEqual(['true as const → false as const'])
  })

  it('mutants have the line and the name of the method around the change', () => {
    const text = 'class A {\n  #run(): void {\n    if (a) {}\n  }\n}\n'
    const [mutant] = mutantsOf({ path: 'src/a.ts', text })
    expect(mutant).toEqual({
      path: 'src/a.ts',
      line: 3,
      within: 'run',
      before: 'a',
      after: '!(a)',
      text: text.replace('(a)', '(!(a))'),
    })
  })
})

describe('mutants of the package', () => {
  const files = readTree(process.cwd())
  const mutants = files
    .filter(({ path }) => mutatedFolders.some((folder) => path.startsWith(`${folder}/`)))
    .flatMap(mutantsOf)

  it('mutants of the package can be parsed', () => {
    const sample = mutants.filter((_, at) => at % 40 === 0)
    expect(sample.length).toBeGreaterThan(100)
    const broken = sample.filter(({ path, text }) => parseSync(path, text).errors.length > 0)
    expect(broken.map(({ path, line, after }) => `${path}:${line} ${after}`)).toEqual([])
  })

  it('mutants that may survive exist once, are listed once, and have a reason', () => {
    const keys = Map.groupBy(mutants, keyOf)
    expect(survivors.filter((one) => keys.get(keyOf(one))?.length !== 1)).toEqual([])
    expect(new Set(survivors.map(keyOf)).size).toBe(survivors.length)
    expect(survivors.filter(({ reason }) => reason.split(' ').length < 4)).toEqual([])
  })
})
