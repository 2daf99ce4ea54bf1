/** Shows a run while it is running: the progress block of the command, for any program. */

import { systemClock } from '../../foundation/clock.ts'
import { expectKnownKeys, expectObject, invalid } from '../../foundation/options.ts'
import { ProgressBlock, type Terminal } from './terminal.ts'
import type { TelemetryEvent } from '../../events/vocabulary.ts'
import { Pass } from '../../views/pass.ts'
import { BarWidth, progressLines, progressPanels, summaryLines } from './progress-lines.ts'

/** Where progress is written: `process.stderr`, or anything with `write`. */
export interface ProgressStream {
  /** Takes text for people, with line feeds. */
  write(text: string): unknown
  /** A terminal is redrawn in place; other streams, and `TERM=dumb`, get lines every 10 seconds. */
  readonly isTTY?: boolean
  readonly columns?: number
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
  /** Delivers events that are still queued. Without it the last numbers may lack them. */
  dispatchNow?(): void
}

const ttyRedrawMs = 100
const plainSeconds = 10

/**
 * Shows one line per kind of task: how many have ended, failed, run and wait for their next
 * attempt, the rate and the time left. The returned function ends the display with the current
 * numbers and the failures by cause; after `session.close()` these are final. Does not keep the
 * process alive. An error of the stream, such as a closed pipe, only ends the display.
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

class ProgressDisplay {
  readonly #telemetry: FollowedTelemetry
  readonly #stream: ProgressStream
  readonly #block: ProgressBlock
  readonly #redrawMs: number
  readonly #pass = new Pass(progressPanels)
  readonly #barWidth = new BarWidth()
  /** Used as the start of the run if SessionStarted was delivered before. */
  readonly #since = systemClock.now()
  #isBroken = false
  #cancelTimer = (): void => {}

  constructor(telemetry: FollowedTelemetry, stream: ProgressStream, lineSeconds: number) {
    this.#telemetry = telemetry
    this.#stream = stream
    // A dumb terminal does not understand cursor codes.
    const isTTY = stream.isTTY === true && process.env['TERM'] !== 'dumb'
    this.#block = new ProgressBlock(this.#guarded(isTTY))
    this.#redrawMs = isTTY ? ttyRedrawMs : lineSeconds * 1000
  }

  start(): () => void {
    const unsubscribe = this.#telemetry.subscribe((event) => this.#pass.take(event))
    const stopListening = this.#listenForErrors()
    this.#drawLater()
    let hasStopped = false
    return () => {
      if (hasStopped) return
      hasStopped = true
      this.#telemetry.dispatchNow?.()
      unsubscribe()
      this.#cancelTimer()
      this.#draw()
      for (const line of summaryLines(this.#pass, this.#since)) this.#write(`${line}\n`)
      stopListening()
    }
  }

  #drawLater(): void {
    const tick = (): void => {
      this.#draw()
      this.#drawLater()
    }
    this.#cancelTimer = systemClock.after(this.#redrawMs, tick, { background: true })
  }

  #draw(): void {
    const { width, isRedrawn } = this.#block
    const isColored = isRedrawn && (process.env['NO_COLOR'] ?? '') === ''
    const lines = progressLines(this.#pass, systemClock.now(), {
      width,
      hasBars: isRedrawn,
      isColored,
      since: this.#since,
      barWidth: this.#barWidth,
    })
    this.#block.draw([`session ${this.#telemetry.sessionId}`, ...lines])
  }

  #guarded(isTTY: boolean): Terminal {
    const [stream, write] = [this.#stream, (text: string): void => this.#write(text)]
    return {
      write,
      isTTY,
      get columns() {
        return stream.columns ?? 0
      },
    }
  }

  #write(text: string): void {
    if (this.#isBroken) return
    try {
      this.#stream.write(text)
    } catch {
      this.#isBroken = true
    }
  }

  /** A stream without a listener for its errors would end the process. */
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
