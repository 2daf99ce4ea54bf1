/**
 * The pool's end of one launcher: starts the process, batches what is said to it, notices its
 * death.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import type { FromLauncher, LauncherSetup, ProgramRequest, ToLauncher } from './protocol.ts'

/** Small: a launcher holds little, and what it starts is first a copy of it. */
const nodeFlags = [
  '--v8-pool-size=1',
  '--max-semi-space-size=2',
  '--max-old-space-size=512',
  '--no-warnings',
]
/** A process that gets no threads may hang before it runs anything. */
const startDeadlineMs = 60_000
const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
const program = fileURLToPath(new URL(`./launcher.${extension}`, import.meta.url))

/** What Node reads from the environment and only programs are to have. */
const ofNodeAlone = ['NODE_OPTIONS', 'NODE_V8_COVERAGE', 'NODE_CHANNEL_FD', 'NODE_UNIQUE_ID']

export interface LauncherOptions {
  readonly id: string
  readonly clock: Clock
  readonly setup: Omit<LauncherSetup, 'environment'>
  /** Waits so long before it starts: others before it died at once. */
  readonly delayMs: number
  onNews(news: FromLauncher): void
  /** Called once, if it was ever started. */
  onExit(reason: string): void
}

export class LauncherProcess {
  readonly id: string
  readonly #options: LauncherOptions
  #child: ChildProcess | undefined
  #requests: ProgramRequest[] = []
  #stops: number[] = []
  #isScheduled = false
  #isDelayed: boolean
  #cancelTimer: () => void = () => {}
  #isDisconnected = false
  #endReason: string | undefined
  #isBusy = false
  readonly #gone = Promise.withResolvers<void>()

  constructor(options: LauncherOptions) {
    this.id = options.id
    this.#options = options
    this.#isDelayed = options.delayMs > 0
    if (!this.#isDelayed) return
    this.#cancelTimer = options.clock.after(options.delayMs, () => {
      this.#isDelayed = false
      this.#schedule()
    })
  }

  /** The process, once there is one. */
  get pid(): number | undefined {
    return this.#child?.pid
  }

  /** Goes out in the next turn of the loop, in one message with all of this turn. */
  request(request: ProgramRequest): void {
    this.#requests.push(request)
    this.#schedule()
  }

  /** `true` if the request had not gone out: then it never will. */
  withdraw(id: number): boolean {
    const at = this.#requests.findIndex((request) => request.id === id)
    if (at === -1) return false
    this.#requests.splice(at, 1)
    return true
  }

  stop(id: number): void {
    this.#stops.push(id)
    this.#schedule()
  }

  /** A busy launcher keeps the process alive, an idle one does not. */
  setBusy(isBusy: boolean): void {
    this.#isBusy = isBusy
    const action = isBusy ? 'ref' : 'unref'
    this.#child?.[action]()
    this.#child?.channel?.[action]()
  }

  /** Lets it go; resolves when the process is gone. */
  close(): Promise<void> {
    this.#cancelTimer()
    if (this.#child === undefined) return Promise.resolve()
    this.setBusy(true)
    if (this.#child.connected) this.#child.disconnect()
    return this.#gone.promise
  }

  kill(): void {
    this.#child?.kill('SIGKILL')
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isDelayed) return
    this.#isScheduled = true
    this.#options.clock.nextTurn(() => {
      this.#isScheduled = false
      this.#flush()
    })
  }

  #flush(): void {
    if (this.#requests.length + this.#stops.length === 0) return
    if (this.#child === undefined) this.#start()
    const message: ToLauncher = { requests: this.#requests, stops: this.#stops }
    this.#requests = []
    this.#stops = []
    this.#send(message)
  }

  #start(): void {
    const environment = Object.fromEntries(ofNodeAlone.map((name) => [name, process.env[name]]))
    const env = { ...process.env }
    for (const name of ofNodeAlone) delete env[name]
    const child = fork(program, [], {
      execArgv: nodeFlags,
      env,
      // A session of its own: the terminal's Ctrl-C is for the main process to handle.
      detached: true,
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    this.#child = child
    child.on('message', (news) => {
      this.#cancelTimer()
      this.#options.onNews(news as FromLauncher)
    })
    const { clock } = this.#options
    this.#cancelTimer = clock.after(startDeadlineMs, () => this.kill(), { background: true })
    child.on('error', (error) => {
      if (child.pid === undefined) this.#leave({ isDisconnected: true, reason: messageOf(error) })
    })
    child.on('exit', (code, signal) => this.#leave({ reason: signal ?? `exit code ${code}` }))
    child.on('disconnect', () => this.#leave({ isDisconnected: true }))
    this.setBusy(this.#isBusy)
    this.#send({ setup: { ...this.#options.setup, environment } })
  }

  /** A launcher that cannot hear is dying; its exit tells the rest. */
  #send(message: ToLauncher): void {
    if (this.#child?.connected === true) this.#child.send(message, () => {})
  }

  /** Gone only when its last message was taken too. */
  #leave({ isDisconnected = this.#isDisconnected, reason = this.#endReason }): void {
    this.#cancelTimer()
    this.#isDisconnected = isDisconnected
    this.#endReason = reason
    if (!isDisconnected || reason === undefined) return
    this.#gone.resolve()
    this.#options.onExit(reason)
  }
}
