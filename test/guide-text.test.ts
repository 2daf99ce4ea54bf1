import { describe, expect, it } from 'vitest'
import { isShown, stepsOf } from '../scripts/guide-text.ts'

const block = (language: string, ...lines: readonly string[]): string =>
  ['```' + language, ...lines, '```', ''].join('\n')

describe('the steps of a guide', () => {
  it('the steps of a guide are its files and commands, in their order', () => {
    const guide =
      block('ts', '// tasks/one.ts', 'run()') +
      block('json title="tsconfig.json"', '{}') +
      block('console', '$ node one.ts', 'done', '', 'twice', '$ false  # exit code 1') +
      block('console', '$ cat \\', '> file') +
      block('', 'a picture')
    expect(stepsOf(guide)).toEqual([
      { kind: 'file', path: 'tasks/one.ts', text: '// tasks/one.ts\nrun()\n' },
      { kind: 'file', path: 'tsconfig.json', text: '{}\n' },
      { kind: 'command', line: 9, command: 'node one.ts', output: 'done\n\ntwice', exitCode: 0 },
      expect.objectContaining({ line: 13, output: undefined, exitCode: 1 }),
      expect.objectContaining({ line: 16, command: 'cat \\\nfile' }),
    ])
  })

  it('leave out no code: every block names its file', () => {
    expect(() => stepsOf(block('ts', 'run()'))).toThrow('line 1: the first line of code')
    expect(() => stepsOf(block('console', 'ls'))).toThrow('line 2: expected "$ "')
    expect(() => stepsOf('```ts\n// a.ts\n')).toThrow('has no end')
  })
})

describe('the output that a guide shows', () => {
  it('the output of a guide is that of the command, except for what it leaves open', () => {
    expect(isShown('a (1)\nb', 'a (1)\nb\n')).toBe(true)
    expect(isShown('a (1)', 'a 1\n')).toBe(false)
    expect(isShown('a', 'a\nb\n')).toBe(false)
    expect(isShown('took … s', 'took 0.12 s\n')).toBe(true)
    expect(isShown('took … s', 'took 0.12 s\nmore\n')).toBe(false)
  })

  it('the output of a guide may leave out lines', () => {
    expect(isShown('…\nb\n…', 'a\na\nb\n')).toBe(true)
    expect(isShown('…\nb\n…', 'a\na\n')).toBe(false)
  })
})
