import { describe, expect, it } from 'vitest'
import {
  escapeControls,
  escapeLines,
  nameAndProgram,
  userFrames,
  rateText,
} from '../../src/views/readable.ts'
import { shortNames, timeRangeText } from '../../src/views/readable.ts'

describe('words for people', () => {
  it('row 91: characters that are invisible or turn text around are shown as escapes', () => {
    const directions = '\u061C\u200E\u200F\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u2068\u2069'
    const zeroWidth = '\u00AD\u180E\u200B\u200C\u200D\u2060\u2064\uFEFF\u{E0041}'
    const others = '\u0000\t\n\u001B\u007F\u009B\u2028\u2029'
    for (const character of directions + zeroWidth + others) {
      const code = (character.codePointAt(0) ?? 0).toString(16)
      const shown = code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`
      expect(escapeControls(`a${character}b`)).toBe(`a${shown}b`)
    }
    const plain = 'a b ä 語 שלום عربي 🎻 é \\u202e'
    expect(escapeControls(plain)).toBe(plain)
    expect(escapeControls('\n\t', '\n')).toBe('\n\\u0009')
    expect(escapeLines('\u001B\n\u200B')).toBe('\\u001b\n\\u200b')
    expect(escapeControls('a\u034Fb\u3164')).toBe('a\\u034fb\\u3164')
  })

  it.each([
    ['from the sources', 'file:///x/src/backends/local/functions/job-runner.ts:183:43'],
    ['from the bundled package', 'file:///x/node_modules/tutti/dist/chunks/worker.js:183:43'],
    ['of a closure', 'file:///x/node_modules/tutti/dist/chunks/session.js:926:17'],
  ])('stack: the frames of a function end where tutti called it, %s', (_, caller) => {
    const own = 'Error: bad\n    at simulate (file:///x/sim.mjs:8:53)'
    for (const frame of [`    at ${caller}`, `    at async #settle (${caller})`]) {
      expect(userFrames(`${own}\n${frame}\n    at other (node:internal:1:1)`)).toBe(own)
    }
    // A file of that name that is not in the package.
    const user = `${own}\n    at run (file:///x/src/worker.js:1:1)`
    expect(userFrames(user)).toBe(user)
  })

  it('stack: one without a frame of the user has none', () => {
    const frames = [
      'at toFailure (file:///x/node_modules/tutti/dist/workflow/index.js:55:10)',
      'at process.processTicksAndRejections (node:internal/process/task_queues:105:5)',
    ].map((frame) => `\n    ${frame}`)
    expect(userFrames(`Error: bad${frames.join('')}`)).toBe('Error: bad')
    const user = `Error: bad${frames[0]}\n    at main (file:///x/main.mjs:1:1)`
    expect(userFrames(user)).toBe(user)
  })

  it('stack: frames of tutti that called the user, and of what has no file, are left out', () => {
    const tutti = 'file:///x/node_modules/tutti/dist/workflow/index.js:1181:49'
    const own =
      'SyntaxError: bad\n    at JSON.parse (<anonymous>)\n    at join (file:///x/p.ts:26:27)'
    const callers = [`at ${tutti}`, 'at run (node:internal/x:65:14)', `at closure (${tutti})`]
    expect(userFrames([own, ...callers].join('\n    '))).toBe(own)
    const refusal = [`at refuse (${tutti})`, 'at guardInput.next (<anonymous>)']
    expect(userFrames(['Error: refused', ...refusal].join('\n    '))).toBe('Error: refused')
  })

  it('rates have three digits', () => {
    expect([0, 0.254, 7.684, 10.72, 99.96, 12_300].map(rateText)).toEqual([
      '0',
      '0.25',
      '7.68',
      '10.7',
      '100',
      '12,300',
    ])
  })

  it('names: the last part of a path, unless two would read alike', () => {
    const short = shortNames(['sh', '/bin/sh', '/opt/sim'])
    expect(['sh', '/bin/sh', '/opt/sim'].map(short)).toEqual(['sh', '/bin/sh', 'sim'])
    expect(['train/step', 'name/of/7', './sim', '/opt/a b'].map(shortNames([]))).toEqual([
      'train/step',
      'name/of/7',
      'sim',
      '/opt/a b',
    ])
    expect(nameAndProgram('step', '/opt/sim')).toBe('step (sim)')
    expect(nameAndProgram('/opt/sim', '/opt/sim')).toBe('sim')
  })

  it('times: one where the first and the last read alike', () => {
    expect(timeRangeText(100, 100)).not.toContain(' to ')
    expect(timeRangeText(100, 100.0001)).not.toContain(' to ')
    expect(timeRangeText(100, 101)).toMatch(/ to \d\d:\d\d:41\.000$/)
  })
})
