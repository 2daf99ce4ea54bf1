/** Programs on a pseudo-terminal, and the screen that a person would see there. */

import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process'
import { quoteArgument } from '../src/views/readable.ts'
import { eventually } from './eventually.ts'

export interface TerminalSize {
  readonly columns: number
  readonly rows: number
}

/** The cursor codes of a terminal, as far as the library uses them; keeps what scrolls out. */
export class Screen {
  #size: TerminalSize
  /** All lines since the start; the last `rows` of them are visible. */
  readonly #lines: string[][] = [[]]
  #row = 0
  #column = 0
  #top = 0
  #pending = ''

  constructor(size: TerminalSize) {
    this.#size = size
  }

  /** With what has scrolled out of the screen; without empty lines at the end. */
  get lines(): string[] {
    const lines = this.#lines.map((line) => Array.from(line, (cell) => cell ?? ' ').join(''))
    return lines.join('\n').trimEnd().split('\n')
  }

  /** The visible lines. */
  get visible(): string[] {
    return this.lines.slice(this.#top)
  }

  /** Like xterm, which does not rewrap lines. */
  resize(size: TerminalSize): void {
    this.#size = size
    this.#top = Math.max(this.#top, this.#row - size.rows + 1)
  }

  write(text: string): void {
    this.#pending += text
    for (;;) {
      // A code or a line break may arrive in two pieces.
      // oxlint-disable-next-line no-control-regex
      const match = /^(?:\u001B\[([?\d;]*)([A-Za-z])|([^\u001B]))/u.exec(this.#pending)
      if (match === null) return
      this.#pending = this.#pending.slice(match[0].length)
      const [, numbers = '', code, character] = match
      if (code === undefined) this.#put(character ?? '')
      else this.#apply(code, numbers)
    }
  }

  #put(character: string): void {
    if (character === '\r') this.#column = 0
    else if (character === '\n') this.#moveDown()
    else {
      if (this.#column === this.#size.columns) {
        this.#column = 0
        this.#moveDown()
      }
      this.#line()[this.#column++] = character
    }
  }

  #apply(code: string, numbers: string): void {
    const count = Number(numbers === '' ? '1' : numbers)
    if (code === 'A') this.#row = Math.max(this.#top, this.#row - count)
    else if (code === 'B') this.#row = Math.min(this.#top + this.#size.rows - 1, this.#row + count)
    else if (code === 'K' && numbers === '') this.#line().length = this.#column
    else if (code === 'J' && numbers === '') this.#clearBelow()
    else if (code !== 'm') throw new Error(`the screen does not know the code ${numbers}${code}`)
  }

  /** As tmux does, which keeps a screen that is cleared from its first cell on. */
  #clearBelow(): void {
    if (this.#row === this.#top && this.#column === 0) {
      this.#top = this.#lines.length
      this.#row = this.#top
    }
    this.#line().length = this.#column
    this.#lines.length = this.#row + 1
  }

  #moveDown(): void {
    this.#row++
    this.#top = Math.max(this.#top, this.#row - this.#size.rows + 1)
    this.#line()
  }

  #line(): string[] {
    while (this.#lines.length <= this.#row) this.#lines.push([])
    return this.#lines[this.#row] ?? []
  }
}

/** Before it ends, a program must be killed or `ended` awaited. */
export class PseudoTerminal {
  readonly screen: Screen
  readonly ended: Promise<number | null>
  /** Everything that was written, with its codes. */
  text = ''
  readonly #child: ChildProcessWithoutNullStreams

  /** Runs `command` with a shell. */
  constructor(command: string, size: TerminalSize, cwd = process.cwd()) {
    this.screen = new Screen(size)
    const { columns, rows } = size
    const whole = `tty; stty cols ${columns} rows ${rows}; ${command}`
    const env = { ...process.env, TERM: 'xterm', FORCE_COLOR: undefined, NO_COLOR: '1' }
    this.#child = spawn('script', ['-qec', whole, '/dev/null'], { stdio: 'pipe', cwd, env })
    this.#child.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.text += text
      this.screen.write(text)
    })
    this.ended = new Promise((resolve) => this.#child.on('close', resolve))
  }

  type(keys: string): void {
    this.#child.stdin.write(keys)
  }

  /** The program gets SIGWINCH. */
  async resize(size: TerminalSize): Promise<void> {
    const tty = await eventually(() => {
      const [found] = /^\/dev\/\S+(?=\r\n)/.exec(this.text) ?? []
      if (found === undefined) throw new Error('the terminal is not known yet')
      return found
    })
    const words = ['-F', tty, 'cols', String(size.columns), 'rows', String(size.rows)]
    execFileSync('stty', words)
    this.screen.resize(size)
  }

  /** Waits until the visible screen matches. */
  async shows(pattern: RegExp): Promise<string[]> {
    return await eventually(() => {
      const { visible } = this.screen
      if (!pattern.test(visible.join('\n'))) {
        throw new Error(`${pattern} is not on the screen:\n${visible.join('\n')}`)
      }
      return visible
    })
  }
}

/** A command of this version of Node. */
export const nodeCommand = (...args: readonly string[]): string =>
  [process.execPath, ...args].map(quoteArgument).join(' ')
