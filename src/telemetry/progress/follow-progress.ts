/** Shows the progress of a running session in any program, as `tutti run` does for a script. */

import { systemClock } from '../../foundation/clock.ts'
import { expectKnownKeys, expectObject, invalid } from '../../foundation/options.ts'
import { atExit } from '../../runtime/at-exit.ts'
import { PrintedAbove } from './printed-above.ts'
import { ProgressBlock, type Terminal } from './terminal.ts'
import type { TelemetryEvent } from '../../events/vocabulary.ts'
import { Pass } from '../../views/pass.ts'
import { BarWidth, progressLines, progressPanels, summaryLines } from './progress-lines.ts'

/** Where progress is written: `process.stderr`, or anything with `write`. */
export interface ProgressStream {
  /** Writes human-readable text. Lines end with `\n`. */
  write(text: string): unknown
  /**
   * Whether the stream is a terminal, on which the block is redrawn in place. Other streams, and
   * terminals with `TERM=dumb`, get lines every 10 seconds.
   */
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

/** Where `followProgress` writes. */
export interface FollowProgressOptions {
  /** Default: `process.stderr`. */
  readonly stream?: ProgressStream
}

/** The part of a session's telemetry that `followProgress` uses. */
export interface FollowedTelemetry {
  readonly sessionId: string
  /** Calls back with every event until the returned function is called. */
  subscribe(callback: (event: TelemetryEvent) => unknown): () => void
  /**
   * Delivers events that are still queued. If it is missing, the last numbers may not include them.
   */
  dispatchNow?(): void
}

const ttyRedrawIntervalMs = 100
/** The minimum interval between redraws, for programs that print very often. */
const minRedrawIntervalMs = 30
const lineIntervalSeconds = 10

/**
 * Shows one line per kind of task: how many tasks have ended, have failed, are running or wait for
 * their next attempt, the rate and the time left. The returned function ends the display and shows
 * the current numbers and the failures by cause. After `session.close()`, these are final. The
 * display does not keep the process alive. An error of the stream, such as a closed pipe, ends the
 * display, but is not thrown.
 *
 * On a terminal, `write` of `process.stdout` and `process.stderr` is replaced until the display
 * ends, so that output of the program and its workers appears above the display. An unfinished line
 * of output is also shown there until its rest is written. If it is wider than the terminal, a line
 * break is added. Output that child processes write directly to the same terminal is not handled.
 * If another display is already running, lines are written as for a stream that is not a terminal.
 *
 * @example
 * const telemetry = await session.startTelemetry()
 * const stop = followProgress(telemetry)
 * await Promise.allSettled(tasks)
 * await session.close()
 * stop()
 */
export function followProgress(
  telemetry: FollowedTelemetry,
  options: FollowProgressOptions = {},
): () => void {
  if (typeof telemetry?.subscribe !== 'function') {
    throw invalid('telemetry', 'the telemetry of a session', telemetry)
  }
  expectObject('options', options)
  expectKnownKeys('followProgress', options, ['stream'])
  const { stream = process.stderr } = options
  if (typeof stream?.write !== 'function') throw invalid('stream', 'a stream', stream)
  return showProgress(telemetry, stream, lineIntervalSeconds)
}

/** `lineSeconds` is the interval between lines for streams that are not terminals. */
export const showProgress = (
  telemetry: FollowedTelemetry,
  stream: ProgressStream,
  lineSeconds = lineIntervalSeconds,
): (() => void) => new ProgressDisplay(telemetry, stream, lineSeconds).start()

/** Whether some display has drawn a block. A second block would overwrite it. */
let isBlockDrawn = false

class ProgressDisplay {
  readonly #telemetry: FollowedTelemetry
  readonly #stream: ProgressStream
  readonly #block: ProgressBlock
  readonly #redrawMs: number
  readonly #pass = new Pass(progressPanels)
  readonly #barWidth = new BarWidth()
  /** The assumed start of the run if SessionStarted was delivered before the display began. */
  readonly #displayStart = systemClock.now()
  readonly #printedAbove: PrintedAbove
  #isBroken = false
  #lines: readonly string[] = []
  #drawnMs = -Infinity
  #partShownMs = -Infinity
  #cancelTimer = (): void => {}
  #cancelRedraw: (() => void) | null = null

  constructor(telemetry: FollowedTelemetry, stream: ProgressStream, lineSeconds: number) {
    this.#telemetry = telemetry
    this.#stream = stream
    // A dumb terminal does not understand cursor codes.
    const isTTY = stream.isTTY === true && process.env['TERM'] !== 'dumb' && !isBlockDrawn
    this.#block = new ProgressBlock(this.#createTerminal(isTTY))
    this.#redrawMs = isTTY ? ttyRedrawIntervalMs : lineSeconds * 1000
    const terminals = [process.stdout, process.stderr].filter((one) => isTTY && one.isTTY)
    this.#printedAbove = new PrintedAbove(terminals, {
      beforeText: () => this.#makeRoom(),
      onPart: () => this.#showPart(),
    })
  }

  start(): () => void {
    const unsubscribe = this.#telemetry.subscribe((event) => this.#pass.take(event))
    const stopListening = this.#listenForErrors()
    const leaveTerminal = this.#block.isRedrawn ? this.#enterTerminal() : () => {}
    this.#drawLater()
    let hasStopped = false
    return () => {
      if (hasStopped) return
      hasStopped = true
      this.#telemetry.dispatchNow?.()
      unsubscribe()
      this.#cancelTimer()
      this.#cancelRedraw?.()
      this.#update()
      this.#draw([])
      for (const line of summaryLines(this.#pass, this.#displayStart)) this.#write(`${line}\n`)
      leaveTerminal()
      stopListening()
    }
  }

  #enterTerminal(): () => void {
    isBlockDrawn = true
    const onWarning = (): void => this.#makeRoom()
    // Runs before Node's own listener, which prints without calling `write`.
    process.prependListener('warning', onWarning)
    const removeAtExit = atExit(() => {
      if (this.#printedAbove.hasParts) this.#draw([])
      this.#printedAbove.release()
    })
    return () => {
      isBlockDrawn = false
      process.off('warning', onWarning)
      removeAtExit()
      this.#printedAbove.release()
    }
  }

  #drawLater(): void {
    const tick = (): void => {
      this.#update()
      this.#draw()
      this.#drawLater()
    }
    this.#cancelTimer = systemClock.after(this.#redrawMs, tick, { background: true })
  }

  #update(): void {
    const { width, maxLines, isRedrawn } = this.#block
    const isColored = isRedrawn && (process.env['NO_COLOR'] ?? '') === ''
    const lines = progressLines(this.#pass, systemClock.now(), {
      width,
      max: Math.max(1, maxLines - 1),
      hasBars: isRedrawn,
      isColored,
      since: this.#displayStart,
      barWidth: this.#barWidth,
    })
    this.#lines = [`session ${this.#telemetry.sessionId}`, ...lines]
  }

  #draw(parts = this.#printedAbove.parts(this.#block.width)): void {
    const room = Math.max(0, this.#block.maxLines - parts.length)
    const lines = this.#lines.slice(Math.max(0, this.#lines.length - room))
    this.#block.draw([...parts, ...lines])
    this.#drawnMs = systemClock.monotonicMs()
  }

  #makeRoom(): void {
    this.#block.clear()
    this.#redrawLater()
  }

  /**
   * Shows an unfinished line. Draws immediately, because the program may block the event loop next,
   * or be killed. If such a line was shown just before, draws later.
   */
  #showPart(): void {
    const now = systemClock.monotonicMs()
    if (now < this.#partShownMs + minRedrawIntervalMs) {
      this.#redrawLater()
      return
    }
    this.#partShownMs = now
    this.#draw()
  }

  #redrawLater(): void {
    if (this.#cancelRedraw !== null) return
    const waitMs = Math.max(0, this.#drawnMs + minRedrawIntervalMs - systemClock.monotonicMs())
    const redraw = (): void => {
      this.#cancelRedraw = null
      this.#draw()
    }
    this.#cancelRedraw = systemClock.after(waitMs, redraw, { background: true })
  }

  #createTerminal(isTTY: boolean): Terminal {
    const [stream, write] = [this.#stream, (text: string): void => this.#write(text)]
    return {
      write,
      isTTY,
      get columns() {
        return stream.columns ?? 0
      },
      get rows() {
        return stream.rows ?? 0
      },
    }
  }

  #write(text: string): void {
    if (this.#isBroken) return
    try {
      this.#printedAbove.passThrough(() => this.#stream.write(text))
    } catch {
      this.#isBroken = true
    }
  }

  /** A stream error without a listener would crash the process. */
  #listenForErrors(): () => void {
    const emitter = this.#stream as Partial<Pick<NodeJS.EventEmitter, 'on' | 'off'>>
    if (typeof emitter.on !== 'function' || typeof emitter.off !== 'function') return () => {}
    const onError = (): void => {
      this.#isBroken = true
    }
    emitter.on('error', onError)
    // Errors of the last writes may still arrive in the next turn.
    return () => systemClock.nextTurn(() => emitter.off?.('error', onError))
  }
}
