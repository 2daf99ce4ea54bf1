import { fileURLToPath } from 'node:url'
import { describe, expect } from 'vitest'
import { nodeCommand, PseudoTerminal, type TerminalSize } from '../../pseudo-terminal.ts'
import { needs, requireCommand } from '../../require.ts'

const program = fileURLToPath(new URL('../fixtures/many-names.ts', import.meta.url))
const script = requireCommand('script')

/** Without the echo, because what is typed is on the screen otherwise. */
const start = (size: TerminalSize): PseudoTerminal =>
  new PseudoTerminal(`stty -echo; exec ${nodeCommand(program)}`, size)

/** The lines of the block on the screen; nothing of an earlier one is left anywhere. */
function blockOn({ screen }: PseudoTerminal): string[] {
  const { lines } = screen
  const at = lines.findIndex((line) => line.startsWith('session '))
  expect(lines.findLastIndex((line) => line.startsWith('session '))).toBe(at)
  expect(lines.filter((line) => line.startsWith('total '))).toHaveLength(1)
  return lines.slice(at)
}

const namesIn = (block: readonly string[]): number[] =>
  block.flatMap((line) => /^a-.*-(\d+) /.exec(line)?.[1] ?? []).map(Number)

describe('more names than a terminal has rows', () => {
  const cases = [
    [{ columns: 80, rows: 24 }, 22, 'and 26 more'],
    [{ columns: 40, rows: 10 }, 8, 'and 40 more'],
  ] as const
  for (const [size, max, more] of cases) {
    const { columns, rows } = size
    needs(script)(`row 125: 45 names at ${columns}×${rows} are ${max} lines`, async () => {
      const terminal = start(size)
      await terminal.shows(/^total .* 0\/45 /m)
      terminal.type('start 25 complete 20 print 3\n')
      await terminal.shows(/^total .*20\/45 /m)
      const block = blockOn(terminal)
      expect(block).toHaveLength(max)
      expect(block.at(-2)).toBe(more)
      // Running names come first, long enough to be distinguished.
      expect(namesIn(block).slice(0, 5)).toEqual([20, 21, 22, 23, 24])
      expect(terminal.screen.lines.slice(1, 4)).toEqual(['line 0', 'line 1', 'line 2'])
      expect(terminal.screen.lines.filter((line) => line.length >= columns)).toEqual([])
      terminal.type('stop\n')
      expect(await terminal.ended).toBe(0)
      expect(terminal.screen.lines.slice(-2).join('')).toMatch(
        /45 tasks in .*, 20 done, 0 failed, 25 canceled$/,
      )
    })
  }

  needs(script)('row 125: a resized terminal gets a block of its size', async () => {
    const terminal = start({ columns: 80, rows: 24 })
    await terminal.shows(/^total .* 0\/45 /m)
    await terminal.resize({ columns: 40, rows: 10 })
    await terminal.shows(/^and 40 more\ntotal .* 0\/45 /m)
    terminal.type('print 3 start 1\n')
    await terminal.shows(/running 1\n[^]*^and 40 more/m)
    await terminal.resize({ columns: 100, rows: 50 })
    await terminal.shows(/^session .*\n(?:a-step-with-a-long-name-\d+ .*\n?){45}$/m)
    terminal.type('stop\n')
    expect(await terminal.ended).toBe(0)
    const printed = terminal.screen.lines.filter((line) => line.startsWith('line '))
    expect(printed).toEqual(['line 0', 'line 1', 'line 2'])
  })
})
