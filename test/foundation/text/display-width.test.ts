import { describe, expect, it } from 'vitest'
import {
  displayWidth,
  firstColumns,
  lastColumns,
  padColumns,
} from '../../../src/foundation/text/display-width.ts'

describe('displayWidth', () => {
  it.each([
    ['plain text', 10],
    ['Zoë … █░', 8],
    ['e\u0301', 1],
    ['漢字', 4],
    ['ひらがなカタカナ', 16],
    ['ｶﾀｶﾅ', 4],
    ['ＡＢ', 4],
    ['한국', 4],
    ['\u1112\u1161\u11AB', 2],
    ['🚀✅', 4],
    ['🇯🇵', 2],
    ['\u{20000}', 2],
    ['→×', 2],
  ])('displayWidth counts the columns of %s', (text, expected) => {
    expect(displayWidth(text)).toBe(expected)
  })

  it('parts of text never have half a character or a mark without its character', () => {
    expect([firstColumns('a漢字', 2), firstColumns('a漢字', 3)]).toEqual(['a', 'a漢'])
    expect([lastColumns('漢字a', 2), lastColumns('漢字a', 3)]).toEqual(['a', '字a'])
    expect([firstColumns('e\u0301e\u0301', 1), lastColumns('e\u0301e', 1)]).toEqual([
      'e\u0301',
      'e',
    ])
    expect(lastColumns('short', 9)).toBe('short')
  })

  it('displayWidth pads to columns', () => {
    expect([padColumns('漢', 4), padColumns('漢', 4, 'start')]).toEqual(['漢  ', '  漢'])
    expect(padColumns('漢字', 3)).toBe('漢字')
  })
})
