import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { followProgress, Session } from '../../../src/index.ts'
import { PrintedAbove, type PrintStream } from '../../../src/telemetry/progress/printed-above.ts'
import { FakeBackend } from '../../../src/testing/fake-backend.ts'
import { eventually } from '../../eventually.ts'
import { nodeCommand, PseudoTerminal } from '../../pseudo-terminal.ts'
import { needs, requireCommand } from '../../require.ts'

const program = fileURLToPath(new URL('../fixtures/print-while-drawn.ts', import.meta.url))
const script = requireCommand('script')
const size = { columns: 80, rows: 24 }

/** Without the echo, because what is typed is on the screen otherwise. */
const start = (): PseudoTerminal =>
  new PseudoTerminal(`stty -echo; exec ${nodeCommand(program)}`, size)

const blocks = (lines: readonly string[]): number =>
  lines.filter((line) => line.startsWith('session s-')).length

describe('text that is printed while progress is drawn', () => {
  needs(script)('row 125: no line of the program is lost, and one block is left', async () => {
    const terminal = start()
    await terminal.shows(/^session s-/m)
    terminal.type('lines\n')
    await terminal.shows(/^err 19\nsession s-/m)
    terminal.type('lines\nparts\n')
    await terminal.shows(/^other line\nfirst half, second half\nthird\nsession s-/m)
    terminal.type('rest\n')
    await terminal.shows(/^third line\nsession s-/m)
    terminal.type('stop\n')
    expect(await terminal.ended).toBe(0)
    const { lines } = terminal.screen
    const twenty = Array.from({ length: 20 }, (_, at) => [`out ${at}`, `err ${at}`]).flat()
    const parts = ['other line', 'first half, second half', 'third line']
    expect(lines.slice(1, -4)).toEqual([...twenty, ...twenty, ...parts])
    expect(lines.slice(-4)).toEqual([
      expect.stringMatching(/^session s-/),
      expect.stringMatching(/^0 tasks in /),
      'after the end',
      'a descriptor',
    ])
  })

  needs(script)('row 125: output of workers and Node stays above the block', async () => {
    const terminal = start()
    await terminal.shows(/^session s-/m)
    terminal.type('workers\n')
    await eventually(() => {
      const { lines } = terminal.screen
      const own = lines.filter((line) => /^(?:threads|processes): /.test(line)).toSorted()
      const [out, err] = ['stdout', 'stderr']
      const expected = ['processes', 'threads'].flatMap((from) => [
        `${from}: ${err}`,
        `${from}: ${out}`,
      ])
      expect(own).toEqual(expected)
    })
    terminal.type('warning\n')
    await terminal.shows(/a warning of Node\n.*\nsession s-.*\nprinted .* 2\/2/)
    terminal.type('stop\n')
    expect(await terminal.ended).toBe(0)
    const { lines } = terminal.screen
    expect(
      lines.filter((line) => / (?:threads|processes): |a warning/.test(` ${line}`)),
    ).toHaveLength(5)
    expect(blocks(lines)).toBe(1)
  })

  needs(script)('row 125: a line without its end is printed when the process ends', async () => {
    const exited = start()
    await exited.shows(/^session s-/m)
    exited.type('held\nexit\n')
    expect(await exited.ended).toBe(3)
    expect(exited.screen.lines.at(-1)).toBe('without a line break')
    const stopped = start()
    await stopped.shows(/^session s-/m)
    stopped.type('held\nstop\n')
    expect(await stopped.ended).toBe(0)
    // The line continues where it stopped.
    expect(stopped.screen.lines.slice(-2)).toEqual([
      'without a line breakafter the end',
      'a descriptor',
    ])
  })

  needs(script)('row 125: a line without its end is shown above the block', async () => {
    const terminal = start()
    await terminal.shows(/^session s-/m)
    terminal.type('held\n')
    await terminal.shows(/^without a line break\nsession s-/m)
    terminal.type('rest\n')
    await terminal.shows(/^without a line break line\nsession s-/m)
    terminal.type('held\nkilled\n')
    expect(await terminal.ended).not.toBe(0)
    const { lines } = terminal.screen
    expect(lines.slice(1, 3)).toEqual(['without a line break line', 'without a line break'])
    expect(blocks(lines)).toBe(1)
  })

  needs(script)(
    'row 125: a part of a line is not lost if a signal kills a busy program',
    async () => {
      const terminal = start()
      await terminal.shows(/^session s-/m)
      terminal.type('busy\n')
      await terminal.shows(/^RESULT=42\nsession s-/m)
      terminal.type('\u0003')
      expect(await terminal.ended).toBe(130)
      expect(terminal.screen.lines).toContain('RESULT=42')
    },
  )

  needs(script)('row 125: a program that ends stdout after a part of a line goes on', async () => {
    const terminal = start()
    await terminal.shows(/^session s-/m)
    terminal.type('held\nclosed\nstop\n')
    expect(await terminal.ended).toBe(0)
    expect(terminal.screen.lines.at(-1)).toBe('without a line breaka descriptor')
  })
})

/** A stream that calls back, as those of a process do. */
class FakeStream implements PrintStream {
  text = ''
  writable = true

  write(chunk: string | Uint8Array, ...rest: readonly unknown[]): boolean {
    if (typeof chunk === 'number') throw new TypeError('not text')
    const encoding = typeof rest[0] === 'string' ? (rest[0] as BufferEncoding) : 'utf8'
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk
    this.text += Buffer.from(bytes).toString()
    for (const one of rest) if (typeof one === 'function') one()
    return true
  }
}

describe('PrintedAbove', () => {
  const open = () => {
    const stream = new FakeStream()
    const beforeText = (): void => void (stream.text += '^')
    const printed = new PrintedAbove([stream], { beforeText, onPart() {} })
    return { stream, printed }
  }

  it('PrintedAbove calls back for every write, also for text that is kept', () => {
    const { stream, printed } = open()
    let calls = 0
    const done = (): void => void calls++
    stream.write('a', done)
    stream.write('62', 'hex', done)
    stream.write(Buffer.from('c\nd'), done)
    stream.write('e\n')
    expect([stream.text, calls]).toEqual(['^abc\n^de\n', 3])
    printed.release()
    expect(stream.text).toBe('^abc\n^de\n')
  })

  it('PrintedAbove keeps its own copy of bytes that the caller uses again', () => {
    const { stream } = open()
    const bytes = Buffer.from('one')
    stream.write(bytes)
    bytes.fill('x')
    stream.write('\n')
    expect(stream.text).toBe('^one\n')
  })

  it('a very long line is printed in parts, and memory has a limit', () => {
    const { stream, printed } = open()
    for (let at = 0; at < 400; at++) stream.write('x'.repeat(100))
    expect(stream.text.length).toBeGreaterThan(30_000)
    printed.release()
    expect(stream.text.replaceAll(/[\n^]/g, '')).toBe('x'.repeat(40_000))
  })

  it('a very long line is not cut inside a character', () => {
    const { stream, printed } = open()
    const bytes = Buffer.from('é漢🚀'.repeat(6000))
    for (let at = 0; at < bytes.length; at += 1001) stream.write(bytes.subarray(at, at + 1001))
    printed.release()
    expect(stream.text.replaceAll(/[\n^]/g, '')).toBe('é漢🚀'.repeat(6000))
  })

  it('a part of a line is shown as a terminal shows it, and printed if it is too wide', () => {
    const { stream, printed } = open()
    stream.write('10 %\r20 %\u001B[31m of it\u001B[0m\tand')
    expect([printed.parts(20), stream.text]).toEqual([['20 % of it    and'], ''])
    stream.write(Buffer.from(' é').subarray(0, 2))
    expect([printed.parts(20), stream.text]).toEqual([['20 % of it    and '], ''])
    expect(printed.parts(10)).toEqual([])
    expect(stream.text).toMatch(/^\^10 %.*and \n$/su)
    stream.write(Buffer.from('é').subarray(1))
    expect(printed.parts(10)).toEqual(['é'])
  })

  it('a part of a line on a stream that was ended goes to the other one', () => {
    const streams = [new FakeStream(), new FakeStream()] as const
    const printed = new PrintedAbove(streams, { beforeText() {}, onPart() {} })
    streams[0].write('half a line')
    streams[1].write('and another')
    streams[0].writable = false
    printed.release()
    expect(streams.map(({ text }) => text)).toEqual(['', 'half a lineand another'])
  })

  it('the block itself is passed through, and errors are those of the stream', () => {
    const { stream, printed } = open()
    printed.passThrough(() => void stream.write('block'))
    expect(stream.text).toBe('block')
    expect(() => stream.write(7 as never)).toThrow('not text')
    expect(() => stream.write('a', 'no-such-encoding')).toThrow(/encoding/)
  })

  it('PrintedAbove restores `write`, unless something else has replaced it since', () => {
    const { stream, printed } = open()
    printed.release()
    expect(Object.hasOwn(stream, 'write')).toBe(false)
    const write = (): boolean => true
    const own = Object.assign(new FakeStream(), { write })
    new PrintedAbove([own], { beforeText() {}, onPart() {} }).release()
    expect(own.write).toBe(write)
    const wrapped = open()
    const inner = wrapped.stream.write.bind(wrapped.stream)
    wrapped.stream.write = (chunk) => inner(`<${String(chunk)}>`)
    wrapped.stream.write('kept')
    wrapped.printed.release()
    wrapped.stream.write('after')
    expect(wrapped.stream.text).toBe('<kept><after>')
  })
})

describe('two progress displays', () => {
  it('the second one writes lines, until the first one has ended', async () => {
    const session = new Session([new FakeBackend({ name: 'local' })])
    const telemetry = await session.startTelemetry()
    const texts = ['', '', '']
    const streams = texts.map((_, at) => ({
      isTTY: true,
      write: (text: string) => void (texts[at] += text),
    }))
    const follow = (at: number) =>
      followProgress(telemetry, { stream: streams[at] ?? process.stderr })
    const stops = [follow(0), follow(1)]
    await eventually(() => expect(texts[0]).toContain('\u001B['))
    for (const stop of stops) stop()
    expect(texts[1]).not.toContain('\u001B[')
    const stop = follow(2)
    await eventually(() => expect(texts[2]).toContain('\u001B['))
    stop()
    await session.close()
  })
})
