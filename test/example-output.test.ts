import { describe, expect, it } from 'vitest'
import { expectedOutput, firstDifference } from '../scripts/example-output.ts'

describe('the output that an example promises', () => {
  it('the promised output is the last comment block of the example, with empty lines', () => {
    const source = 'run()\n// Output:\n// not this\nrun()\n\n// Output:\n// a\n//\n//   b (1)\n'
    expect(expectedOutput(source)).toEqual(['a', '', '  b (1)'])
  })

  it('the promised output is missing when there is none, it is empty, or code follows', () => {
    expect(expectedOutput('run()\n')).toBeUndefined()
    expect(expectedOutput('run()\n// Output:\n')).toBeUndefined()
    expect(expectedOutput('// Output:\n// a\nrun()\n')).toBeUndefined()
  })

  it('the promised output equals the printed one, character by character', () => {
    expect(firstDifference(['a (1)', 'b.c'], 'a (1)\nb.c\n')).toBeUndefined()
    expect(firstDifference(['b.c'], 'bxc\n')).toBe('line 1: expected "b.c", got "bxc"')
    expect(firstDifference(['a'], 'a\n\n')).toBe('line 2: expected the end, got ""')
    expect(firstDifference(['a', 'b'], 'a\n')).toBe('line 2: expected "b", got the end')
  })

  it('the promised output may leave numbers and text open', () => {
    const expected = ['took <number> s on <host name>']
    expect(firstDifference(expected, 'took 0.12 s on node-1')).toBeUndefined()
    expect(firstDifference(expected, 'took long s on node-1')).toBeDefined()
    expect(firstDifference(expected, 'took 1 s on ')).toBeDefined()
  })
})
