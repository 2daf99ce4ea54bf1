import { statSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createOutput } from '../../src/cli/output.ts'
import { type ReadingHooks, withReadingProgress } from '../../src/cli/reading/open-record.ts'
import type { Terminal } from '../../src/telemetry/progress/terminal.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

class FakeTerminal implements Terminal {
  text = ''
  readonly isTTY: boolean
  readonly columns: number

  constructor(isTTY: boolean, columns = 20) {
    this.isTTY = isTTY
    this.columns = columns
  }

  write(text: string): void {
    this.text += text
  }
}

/** The codes that clear everything from the cursor's line on. */
const cleared = '\u001B[K\u001B[B\u001B[J\u001B[A'

describe('output', () => {
  it('output redraws progress in place on a terminal, also a line that it wraps', () => {
    const [stdout, stderr] = [new FakeTerminal(true), new FakeTerminal(true)]
    const output = createOutput('text', stdout, stderr)
    output.progress(['one', 'a line that is longer than the terminal'])
    output.progress(['two'])
    expect(stderr.text).toBe(
      `one\na line that is\n  longer than the\n  terminal\n\r\u001B[4A${cleared}two\n`,
    )
    expect(stdout.text).toBe('')
  })

  it('output takes 80 columns where a terminal does not know its width', () => {
    const [stdout, stderr] = [new FakeTerminal(true), new FakeTerminal(true, 0)]
    createOutput('text', stdout, stderr).progress(['a line that is longer than twenty columns'])
    expect(stderr.text).toBe('a line that is longer than twenty columns\n')
  })

  it('output clears a block on a terminal by one without lines', () => {
    const [stdout, stderr] = [new FakeTerminal(true), new FakeTerminal(true)]
    const output = createOutput('text', stdout, stderr)
    output.progress(['one'])
    output.progress([])
    expect(stderr.text).toBe(`one\n\r\u001B[1A${cleared}`)
  })

  it('output shows how far a long record is read, and clears that', async () => {
    const [stdout, stderr] = [new FakeTerminal(true, 80), new FakeTerminal(true, 80)]
    const output = createOutput('text', stdout, stderr)
    const file = import.meta.filename
    const clock = new ManualClock()
    const half = Math.ceil(statSync(file).size / 2)
    const result = await withReadingProgress(
      output,
      async ({ onRead }) => {
        onRead(1, file)
        await clock.advance(1000)
        onRead(half, file)
        // Not as often as blocks are read.
        onRead(half + 1, file)
        await clock.advance(1000)
        onRead(7e6, `${file}.zst`)
        return 'read'
      },
      clock,
    )
    expect(result).toBe('read')
    expect(stderr.text).toBe(
      'reading output.test.ts  50 % of 0 MB\n' +
        `\r\u001B[1A${cleared}reading output.test.ts.zst  7 MB\n\r\u001B[1A${cleared}`,
    )
  })

  it('output shows no reading progress without a terminal', async () => {
    const [stdout, stderr] = [new FakeTerminal(false), new FakeTerminal(false)]
    const clock = new ManualClock()
    const read = async ({ onRead }: ReadingHooks): Promise<void> => {
      await clock.advance(5000)
      onRead(1, import.meta.filename)
    }
    await withReadingProgress(createOutput('text', stdout, stderr), read, clock)
    expect(stderr.text).toBe('')
  })

  it('output has one plain line for each block where there is no terminal', () => {
    const [stdout, stderr] = [new FakeTerminal(false, 0), new FakeTerminal(false, 0)]
    createOutput('text', stdout, stderr).progress(['one', 'two'])
    expect(stderr.text).toBe('one | two\n')
  })

  it('only the text form has a terminal for progress, of the size that stderr has now', () => {
    const [stdout, stderr] = [new FakeTerminal(true), new FakeTerminal(true)]
    const terminal = createOutput('text', stdout, Object.assign(stderr, { rows: 7 })).terminal
    expect([terminal?.isTTY, terminal?.columns, terminal?.rows]).toEqual([true, 20, 7])
    Object.assign(stderr, { columns: 30, rows: 9 })
    expect([terminal?.columns, terminal?.rows]).toEqual([30, 9])
    expect(createOutput('json', stdout, stderr).terminal).toBeNull()
  })

  it('row 91: output lets no control character of foreign text reach the terminal', () => {
    const [stdout, stderr] = [new FakeTerminal(true, 80), new FakeTerminal(true, 80)]
    const output = createOutput('text', stdout, stderr)
    output.result({}, ['\u001B]0;title\u0007 a\nb \u009B31m \u202E\u200B', 'plain ä 語 🎻'])
    output.problem('\u001B[2J\n    at here')
    output.failure({ code: 'ValueError', message: '\u2066x', hint: '\uFEFFy' })
    output.progress(['reading \u202Ea'])
    expect(stdout.text).toBe(
      String.raw`\u001b]0;title\u0007 a\u000ab \u009b31m \u202e\u200b` + '\nplain ä 語 🎻\n',
    )
    const failure = String.raw`ValueError  \u2066x` + '\n' + String.raw`  hint: \ufeffy`
    const progress = String.raw`reading \u202ea`
    expect(stderr.text).toBe(`${String.raw`\u001b[2J`}\n    at here\n${failure}\n${progress}\n`)
  })

  it('output is JSON alone on stdout under --json', () => {
    const [stdout, stderr] = [new FakeTerminal(true), new FakeTerminal(true)]
    const output = createOutput('json', stdout, stderr)
    output.progress(['hidden'])
    output.result({ tasks: 3 }, ['words'])
    expect(JSON.parse(stdout.text)).toEqual({ tasks: 3 })
    expect(stderr.text).toBe('')
  })

  it('output is silent under --quiet, but not about problems', () => {
    const [stdout, stderr] = [new FakeTerminal(true), new FakeTerminal(true)]
    const output = createOutput('quiet', stdout, stderr)
    output.progress(['hidden'])
    output.result({}, ['hidden'])
    output.problem('broken')
    expect([stdout.text, stderr.text]).toEqual(['', 'broken\n'])
  })
})
