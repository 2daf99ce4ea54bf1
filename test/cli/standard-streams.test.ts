import { EventEmitter } from 'node:events'
import { describe, expect, it } from 'vitest'
import { createOutput } from '../../src/cli/output.ts'
import { guardStreams } from '../../src/cli/standard-streams.ts'

class FakeStream extends EventEmitter {
  text = ''
  readonly isTTY = true
  columns = 40

  write(text: string): void {
    this.text += text
  }

  fail(code: string): void {
    this.emit('error', Object.assign(new Error(`${code}: write`), { code }))
  }
}

function setUp(term = 'xterm') {
  const [stdout, stderr] = [new FakeStream(), new FakeStream()]
  const failures: string[] = []
  const onFailure = (message: string) => void failures.push(message)
  const streams = guardStreams({ stdout, stderr, term, onFailure })
  const output = createOutput('text', streams.stdout, streams.stderr)
  return { stdout, stderr, output, failures }
}

describe('the standard streams', () => {
  it('row 96: a closed stderr stops the drawing alone', () => {
    const { stdout, stderr, output, failures } = setUp()
    output.progress(['one'])
    stderr.fail('EPIPE')
    output.progress(['two'])
    output.result({}, ['done'])
    expect([stderr.text, stdout.text]).toEqual(['one\n', 'done\n'])
    expect([output.closed.aborted, failures]).toEqual([false, []])
  })

  it('row 96: a closed stdout asks for the end, quietly', () => {
    const { stdout, stderr, output, failures } = setUp()
    stdout.fail('EPIPE')
    output.result({}, ['done'])
    expect([stderr.text, stdout.text]).toEqual(['', ''])
    expect([output.closed.aborted, failures]).toEqual([true, []])
  })

  it('standard streams: any other error of stdout is reported once, and ends the command', () => {
    const { stdout, stderr, output, failures } = setUp()
    stdout.fail('ENOSPC')
    stdout.fail('ENOSPC')
    expect(failures).toEqual(['stdout cannot be written: ENOSPC: write'])
    expect([stderr.text, output.closed.aborted]).toEqual(['', true])
  })

  it('standard streams: an error of stderr is a failure that cannot be reported', () => {
    const { stderr, output, failures } = setUp()
    stderr.fail('ENOSPC')
    output.problem('lost')
    expect([stderr.text, output.closed.aborted]).toEqual(['', false])
    expect(failures).toEqual(['stderr cannot be written: ENOSPC: write'])
  })

  it('row 96: a dumb terminal gets no cursor codes, and no line wider than it is', () => {
    const { stdout, stderr, output } = setUp('dumb')
    output.progress(['one', 'two'])
    output.progress(['t'.repeat(50)])
    output.terminal?.write(`${'word '.repeat(10)}\n`)
    output.result({}, ['word '.repeat(10)])
    expect(stderr.text).toMatch(/^one\ntwo\nt+\n {2}t+\nword /)
    const lines = [...stdout.text.split('\n'), ...stderr.text.split('\n')]
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(40)
  })

  it('standard streams: a terminal that changes its width is followed', () => {
    const { stderr, output } = setUp()
    stderr.columns = 100
    expect(output.terminal?.columns).toBe(100)
  })
})
