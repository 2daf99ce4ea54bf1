/**
 * One child process that runs a program of this package. The owner decides when to replace a child
 * that has exited (`Restarts`, `supervise`).
 */

import { type ChildProcess, fork } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { closeSync, existsSync, openSync } from 'node:fs'
import type { Socket } from 'node:net'
import { devNull } from 'node:os'
import { fileURLToPath } from 'node:url'
import { Worker, type WorkerOptions } from 'node:worker_threads'
import type { Clock } from '../foundation/clock.ts'
import { BackendError, messageOf, TimeoutError } from '../foundation/errors.ts'
import { fulfillsWithin } from '../foundation/promises.ts'
import {
  channelVariable,
  type ChannelContent,
  guardInternalMessages,
  MessageBatcher,
  openEnvelope,
  toEnvelope,
} from './channel.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { once } from '../foundation/service.ts'
import { signalGroup } from './process-group.ts'

export interface ChildOptions<Out, In> {
  /** A file that calls `connectToParent`; see `siblingProgram`. */
  readonly program: URL
  readonly clock: Clock
  readonly execArgv?: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  /** Whether the child has its own process group, which Ctrl-C in the terminal does not reach. */
  readonly isDetached?: boolean
  /** `capture` keeps the last part of the output for `ChildExit.output`. Default `inherit`. */
  readonly stdout?: 'inherit' | 'ignore' | 'capture'
  readonly stderr?: 'inherit' | 'capture'
  readonly startDelayMs?: number
  /**
   * The child is killed if it is not ready within this time, because a process that gets no threads
   * may hang before it runs code. `null` for no deadline. Default 60,000.
   */
  readonly readyDeadlineMs?: number | null
  /** How long `close` waits between its request, SIGTERM and SIGKILL. Default 2,000. */
  readonly graceMs?: number
  /** Sent before all other messages. Does not start the child. */
  readonly firstMessage?: Out
  /** Called when the child accepts messages, before the held messages are sent. */
  onReady?(): void
  /** Called with a batch of messages, in the order in which they were sent. */
  onMessages(messages: readonly In[]): void
  onLine?(line: string): void
  onStdout?(text: string): void
  onStderr?(text: string): void
  /** Called for a message that user code in the child has sent. The message is ignored. */
  onIgnored?(): void
  /** Called once, after the last message, unless the child was never started. */
  onExit(exit: ChildExit): void
}

export interface ChildExit {
  readonly code: number | null
  readonly signal: string | null
  /**
   * Why the child could not be started, was not ready in time, or used another protocol version.
   */
  readonly error: Error | null
  /** The last part of the captured output, with secrets masked. */
  readonly output: string
}

/** Describes the exit, such as `SIGKILL` or `exit code 1`. */
export function exitReason({ code, signal, error }: ChildExit): string {
  return error === null ? (signal ?? `exit code ${code}`) : messageOf(error)
}

/**
 * Returns the URL of a program next to the given file: TypeScript in the sources, JavaScript when
 * built. Throws if the program is missing, as in a bundle.
 */
export function siblingProgram(importMetaUrl: string | undefined, name: string): URL {
  // A CommonJS bundle has no `import.meta`.
  const base = importMetaUrl ?? 'file:///bundle.js'
  const program = new URL(`./${name}${base.slice(base.lastIndexOf('.'))}`, base)
  if (existsSync(program)) return program
  throw new BackendError(`the program ${name} of tutti is missing, which its workers run`, {
    code: 'BundledError',
    hint:
      'If a bundler put tutti into your program: leave `tutti` external, for example with ' +
      'esbuild `--external:tutti`, and install it beside the program. Leave modules that call ' +
      '`defineTask` external as well: workers import them by their path.',
  })
}

/** Starts a thread that runs a program; see `siblingProgram`. */
export function startSiblingThread(
  importMetaUrl: string | undefined,
  name: string,
  options: WorkerOptions,
): Worker {
  // Drops Node's options, because a thread with `--input-type` refuses to run a file.
  const hasInputType = process.execArgv.some((option) => option.startsWith('--input-type'))
  const program = siblingProgram(importMetaUrl, name)
  return new Worker(program, { ...(hasInputType ? { execArgv: [] } : {}), ...options })
}

/** Variables that Node reads and a child must not inherit. */
export const nodeVariables = [
  'NODE_OPTIONS',
  'NODE_V8_COVERAGE',
  'NODE_CHANNEL_FD',
  'NODE_UNIQUE_ID',
] as const

/**
 * Returns a random id, so that user code cannot guess it. It is a number, because numbers are cheap
 * to clone.
 */
export const newChannelId = (): number => randomInt(2 ** 47)

/** How long to wait for output after the exit. A grandchild may keep the pipes open forever. */
const outputGraceMs = 1000

/**
 * Holds messages until the child is ready. The child keeps this process alive only between `ref`
 * and `unref`, and exits with this process.
 */
export class SupervisedChild<Out, In> {
  readonly #options: ChildOptions<Out, In>
  readonly #channel = newChannelId()
  readonly #outbox: MessageBatcher<Out>
  readonly #tail: OutputTail
  readonly #exited = Promise.withResolvers<void>()
  #process: ChildProcess | null = null
  #isStartDue = false
  #isReady = false
  #hasExited = false
  #refs = 0
  #error: Error | null = null
  #cancelStartTimer: () => void = () => {}

  constructor(options: ChildOptions<Out, In>) {
    this.#options = options
    this.#tail = new OutputTail((line) => options.onLine?.(line))
    const send = (messages: readonly Out[], onSent: () => void): void =>
      this.#send(messages, onSent)
    this.#outbox = new MessageBatcher({ clock: options.clock, send })
  }

  get pid(): number | undefined {
    return this.#process?.pid
  }

  /** Whether the child accepts messages. Messages are held until then. */
  get isReady(): boolean {
    return this.#isReady
  }

  get output(): string {
    return this.#tail.text
  }

  /** Starts the child now. Otherwise the first message starts it. */
  start(): void {
    if (this.#process !== null || this.close.isCalled) return
    const { program, clock, execArgv = [], env = process.env } = this.#options
    const { stdout, stderr, isDetached = false, readyDeadlineMs = 60_000 } = this.#options
    const child = fork(fileURLToPath(program), [], {
      execArgv: [...execArgv],
      env: { ...env, [channelVariable]: String(this.#channel) },
      detached: isDetached,
      serialization: 'advanced',
      stdio: ['ignore', toStdio(stdout), toStdio(stderr), 'ipc'],
    })
    this.#process = child
    guardInternalMessages(child, () => this.#options.onIgnored?.())
    child.on('message', (received) => this.#receive(received))
    child.on('error', (error) => {
      if (child.pid === undefined) this.#exit({ error })
    })
    // Messages and output may still arrive after the exit.
    child.on('close', (code, signal) => this.#exit({ code, signal }))
    child.on('exit', (code, signal) => {
      const exit = (): void => this.#exit({ code, signal })
      const cancel = clock.after(outputGraceMs, () => clock.nextTurn(exit))
      void this.#exited.promise.then(cancel)
    })
    for (const stream of this.#captured) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#tail.add(text)
        if (stream === child.stderr) this.#options.onStderr?.(text)
        else this.#options.onStdout?.(text)
      })
    }
    if (readyDeadlineMs !== null) this.#expectReady(readyDeadlineMs)
    this.#applyRefs()
  }

  post(message: Out): void {
    if (this.#isReady) return this.#outbox.post(message)
    this.#outbox.enqueue(message)
    this.#startSoon()
  }

  send(message: Out): void {
    if (this.#isReady) return this.#outbox.send(message)
    this.#outbox.enqueue(message)
    this.#startSoon()
  }

  withdraw(matches: (message: Out) => boolean): boolean {
    return this.#outbox.withdraw(matches)
  }

  /** Keeps this process alive until `unref` has been called as often as `ref`. */
  ref(): void {
    if (++this.#refs === 1) this.#applyRefs()
  }

  unref(): void {
    if (--this.#refs === 0) this.#applyRefs()
  }

  /** Sends SIGKILL to the child, or to its process group if it is detached. */
  kill(): void {
    const { pid } = this
    if (this.#hasExited || pid === undefined) return
    if (this.#options.isDetached === true) signalGroup(pid, 'SIGKILL')
    else this.#process?.kill('SIGKILL')
  }

  /** Asks the child to exit, then sends SIGTERM, then SIGKILL. Resolves when it has exited. */
  readonly close = once(async (): Promise<void> => {
    const child = this.#process
    if (child === null) return this.#cancelStartTimer()
    if (this.#hasExited) return
    this.ref()
    // A child that is not ready has nothing to clean up.
    if (!this.#isReady) this.kill()
    this.#send('end', () => {})
    const { clock, graceMs = 2000 } = this.#options
    if (await fulfillsWithin(clock, graceMs, this.#exited.promise)) return
    child.kill('SIGTERM')
    if (await fulfillsWithin(clock, graceMs, this.#exited.promise)) return
    this.kill()
    await this.#exited.promise
  })

  #expectReady(ms: number): void {
    const error = new TimeoutError(`it was not ready within ${ms / 1000} s`)
    const { clock } = this.#options
    this.#cancelStartTimer = clock.after(ms, () => this.#fail(error), { background: true })
  }

  #startSoon(): void {
    if (this.#isStartDue || this.#process !== null || this.close.isCalled) return
    const { clock, startDelayMs = 0 } = this.#options
    this.#isStartDue = true
    const start = (): void => {
      this.#isStartDue = false
      // All messages may have been withdrawn in the meantime.
      if (this.#outbox.size === 0) return
      try {
        expectDescriptors(neededDescriptors)
        this.start()
      } catch (error) {
        this.#exit({ error: error as Error })
      }
    }
    if (startDelayMs > 0) this.#cancelStartTimer = clock.after(startDelayMs, start)
    else clock.nextTurn(start)
  }

  get #captured(): Socket[] {
    const streams = [this.#process?.stdout, this.#process?.stderr]
    return streams.filter((stream): stream is Socket => stream !== null && stream !== undefined)
  }

  #applyRefs(): void {
    const action = this.#refs > 0 ? 'ref' : 'unref'
    this.#process?.[action]()
    this.#process?.channel?.[action]()
    for (const stream of this.#captured) stream[action]()
  }

  /** Sends a message. Drops it if the child has disconnected. */
  #send(content: ChannelContent<Out>, onSent: () => void): void {
    if (this.#process?.connected !== true) return onSent()
    this.#process.send(toEnvelope(this.#channel, content), undefined, undefined, onSent)
  }

  #receive(received: unknown): void {
    let content
    try {
      content = openEnvelope(this.#channel, received)
    } catch (error) {
      return this.#fail(error as Error)
    }
    if (content === 'ready') {
      this.#isReady = true
      this.#cancelStartTimer()
      const { firstMessage } = this.#options
      if (firstMessage !== undefined) this.#send([firstMessage], () => {})
      this.#options.onReady?.()
      void this.#outbox.flush()
    } else if (Array.isArray(content)) {
      this.#options.onMessages(content as readonly In[])
    } else {
      this.#options.onIgnored?.()
    }
  }

  #fail(error: Error): void {
    this.#error ??= error
    this.kill()
  }

  #exit({ code = null, signal = null, error = this.#error }: Partial<ChildExit>): void {
    if (this.#hasExited) return
    this.#hasExited = true
    this.#cancelStartTimer()
    this.#exited.resolve()
    this.#options.onExit({ code, signal, error, output: this.#tail.text })
  }
}

/** The most descriptors that a start needs for its streams, the channel and Node's pipe. */
const neededDescriptors = 6

/**
 * Throws the system's error unless enough file descriptors are free. If Node lacks descriptors for
 * a start, it leaks those that it has already opened.
 */
export function expectDescriptors(count: number): void {
  const opened: number[] = []
  try {
    while (opened.length < count) opened.push(openSync(devNull, 'r'))
  } finally {
    for (const descriptor of opened) closeSync(descriptor)
  }
}

const toStdio = (stream: 'inherit' | 'ignore' | 'capture' = 'inherit') =>
  stream === 'capture' ? 'pipe' : stream

const maxTailLength = 8192

/** Keeps the last part of an output and reports its lines. Masks secrets in both. */
class OutputTail {
  readonly #onLine: (line: string) => void
  #tail = ''
  #line = ''

  constructor(onLine: (line: string) => void = () => {}) {
    this.#onLine = onLine
  }

  get text(): string {
    return maskSecrets(this.#tail).trim()
  }

  add(chunk: string): void {
    this.#tail = (this.#tail + chunk).slice(-maxTailLength)
    // Also splits at carriage returns, with which a progress bar rewrites its line.
    const lines = (this.#line + chunk).split(/[\r\n]+/)
    this.#line = (lines.pop() ?? '').slice(-maxTailLength)
    for (const line of lines) if (line.trim() !== '') this.#onLine(maskSecrets(line.trimEnd()))
  }
}
