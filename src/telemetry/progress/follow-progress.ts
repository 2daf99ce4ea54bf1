/** Shows a run while it is running: the command's progress block, for any program. */

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
  /** Accepts text for people, with line feeds. */
  write(text: string): unknown
  /** A terminal is redrawn in place; other streams, and `TERM=dumb`, get lines every 10 seconds. */
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

/** Options of `followProgress`. */
export interface FollowProgressOptions {
  /** Default: `process.stderr`. */
  readonly stream?: ProgressStream
}

/** The part of a session's telemetry that `followProgress` uses. */
export interface FollowedTelemetry {
  readonly sessionId: string
  /** Calls back with every event until the returned function is called. */
  subscribe(callback: (event: TelemetryEvent) => unknown): () => void
  /** Delivers events that are still queued. Without it, the last numbers may not include them. */
  dispatchNow?(): void
}

const ttyRedrawMs = 100
/** While a program prints very often, the block is redrawn no more often than this. */
const reappearMs = 30
const plainSeconds = 10

/**
 * Shows one line per kind of task: how many have ended, failed, are running or waiting for their
 * next attempt, the rate and the time left. The returned function ends the display with the current
 * numbers and the failures by cause, which are final after `session.close()`. Does not keep the
 * process alive. A stream error, such as a closed pipe, only ends the display.
 *
 * On a terminal, `write` of `process.stdout` and `process.stderr` is replaced until then: output of
 * the program and its workers appears above the lines. An unfinished line is shown there until the
 * rest is written. If it is wider than the terminal, a line break is added. Output that child
 * processes write to the same terminal directly is not handled. A second concurrent display writes
 * lines, as for a stream that is not a terminal.
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
  return showProgress(telemetry, stream, plainSeconds)
}

/** `lineSeconds` is the interval between lines for streams that are not terminals. */
export const showProgress = (
  telemetry: FollowedTelemetry,
  stream: ProgressStream,
  lineSeconds = plainSeconds,
): (() => void) => new ProgressDisplay(telemetry, stream, lineSeconds).start()

/** Whether a block is drawn. A second block would overwrite it. */
let isDrawn = false

class ProgressDisplay {
  readonly #telemetry: FollowedTelemetry
  readonly #stream: ProgressStream
  readonly #block: ProgressBlock
  readonly #redrawMs: number
  readonly #pass = new Pass(progressPanels)
  readonly #barWidth = new BarWidth()
  /** Replaces the start of the run if SessionStarted was delivered before. */
  readonly #since = systemClock.now()
  readonly #printed: PrintedAbove
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
    const isTTY = stream.isTTY === true && process.env['TERM'] !== 'dumb' && !isDrawn
    this.#block = new ProgressBlock(this.#guarded(isTTY))
    this.#redrawMs = isTTY ? ttyRedrawMs : lineSeconds * 1000
    const terminals = [process.stdout, process.stderr].filter((one) => isTTY && one.isTTY)
    this.#printed = new PrintedAbove(terminals, {
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
      for (const line of summaryLines(this.#pass, this.#since)) this.#write(`${line}\n`)
      leaveTerminal()
      stopListening()
    }
  }

  #enterTerminal(): () => void {
    isDrawn = true
    const onWarning = (): void => this.#makeRoom()
    // Called before Node's own listener, which does not print through `write`.
    process.prependListener('warning', onWarning)
    const removeAtExit = atExit(() => {
      if (this.#printed.hasParts) this.#draw([])
      this.#printed.release()
    })
    return () => {
      isDrawn = false
      process.off('warning', onWarning)
      removeAtExit()
      this.#printed.release()
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
      since: this.#since,
      barWidth: this.#barWidth,
    })
    this.#lines = [`session ${this.#telemetry.sessionId}`, ...lines]
  }

  /** Draws the block, with unfinished lines above it. */
  #draw(parts = this.#printed.parts(this.#block.width)): void {
    const room = Math.max(0, this.#block.maxLines - parts.length)
    const lines = this.#lines.slice(Math.max(0, this.#lines.length - room))
    this.#block.draw([...parts, ...lines])
    this.#drawnMs = systemClock.monotonicMs()
  }

  /** Removes the block to make room for other text, and redraws it below. */
  #makeRoom(): void {
    this.#block.clear()
    this.#redrawLater()
  }

  /** Draws immediately, unless it has just done so: the program may be busy next, or be killed. */
  #showPart(): void {
    const now = systemClock.monotonicMs()
    if (now < this.#partShownMs + reappearMs) {
      this.#redrawLater()
      return
    }
    this.#partShownMs = now
    this.#draw()
  }

  #redrawLater(): void {
    if (this.#cancelRedraw !== null) return
    const waitMs = Math.max(0, this.#drawnMs + reappearMs - systemClock.monotonicMs())
    const redraw = (): void => {
      this.#cancelRedraw = null
      this.#draw()
    }
    this.#cancelRedraw = systemClock.after(waitMs, redraw, { background: true })
  }

  #guarded(isTTY: boolean): Terminal {
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
      this.#printed.passThrough(() => this.#stream.write(text))
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
