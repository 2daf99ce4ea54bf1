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
    await terminal.shows(/^other line\nfirst half, second half\nsession s-/m)
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

  needs(script)('row 125: what workers and Node print stays above the block', async () => {
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
    // The line goes on where it was left.
    expect(stopped.screen.lines.slice(-2)).toEqual([
      'without a line breakafter the end',
      'a descriptor',
    ])
  })
})

/** A stream that calls back, as those of a process do. */
class FakeStream implements PrintStream {
  text = ''

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
    const printed = new PrintedAbove([stream], () => void (stream.text += '^'))
    return { stream, printed }
  }

  it('calls back for every write, also for text that is kept', () => {
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

  it('keeps its own copy of bytes that the caller uses again', () => {
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

  it('the block itself is passed through, and errors are those of the stream', () => {
    const { stream, printed } = open()
    printed.passThrough(() => void stream.write('block'))
    expect(stream.text).toBe('block')
    expect(() => stream.write(7 as never)).toThrow('not text')
    expect(() => stream.write('a', 'no-such-encoding')).toThrow(/encoding/)
  })

  it('restores `write`, unless something else has replaced it since', () => {
    const { stream, printed } = open()
    printed.release()
    expect(Object.hasOwn(stream, 'write')).toBe(false)
    const write = (): boolean => true
    const own = Object.assign(new FakeStream(), { write })
    new PrintedAbove([own], () => {}).release()
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
