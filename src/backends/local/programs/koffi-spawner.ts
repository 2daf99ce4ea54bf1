/** Starts programs with posix_spawn, and reads their usage with wait4. Needs koffi. */

import { openSync } from 'node:fs'
import { Socket } from 'node:net'
import type * as Koffi from 'koffi'
import { errnoOf } from '../../../foundation/errors.ts'
import { importPeer } from '../../../runtime/import-peer.ts'
import { Libc, type ExitedChild } from './libc.ts'
import { machineMs } from '../machine-time.ts'
import type { OutputCapture } from './output-capture.ts'
import type { ProgramWatcher, SpawnPlan, Spawner } from './spawner.ts'

interface Child {
  readonly watcher: ProgramWatcher
  readonly readers: readonly PipeReader[]
  readonly stdin: Socket | undefined
}

export class KoffiSpawner implements Spawner {
  readonly #libc: Libc
  readonly #environment: Uint8Array
  readonly #nullDevice = openSync('/dev/null', 'r')
  readonly #children = new Map<number, Child>()

  /** Throws if koffi or a C function is missing. The caller must call `reap` on SIGCHLD. */
  static async create(environment: Readonly<Record<string, string>>): Promise<KoffiSpawner> {
    const { default: koffi } = await importPeer<typeof Koffi>('koffi')
    return new KoffiSpawner(new Libc(koffi), environment)
  }

  private constructor(libc: Libc, environment: Readonly<Record<string, string>>) {
    this.#libc = libc
    this.#environment = libc.toVector(toEnvironmentStrings(environment))
  }

  spawn(plan: SpawnPlan, watcher: ProgramWatcher): number {
    const pipes = new ProgramPipes(this.#libc)
    let pid: number
    try {
      pid = this.#spawn(plan, pipes)
    } catch (error) {
      pipes.closeAll()
      watcher.failed(errnoOf(error))
      return 0
    }
    pipes.closeProgramEnds()
    const stdin = plan.stdin === null ? undefined : pipes.writeStdin(plan.stdin)
    this.#children.set(pid, { watcher, readers: pipes.readers, stdin })
    return pid
  }

  streamOutput(pid: number): void {
    for (const reader of this.#children.get(pid)?.readers ?? []) reader.stream()
  }

  reap(): void {
    // A process inherits the peak memory of its parent, so only a higher peak is its own.
    const inheritedPeak = process.resourceUsage().maxRSS * 1024
    for (let reaped = this.#libc.reap(); reaped !== undefined; reaped = this.#libc.reap()) {
      this.#handleExit(reaped, inheritedPeak)
    }
  }

  #spawn({ file, argv, cwd, env, stdin, stdout, stderr }: SpawnPlan, pipes: ProgramPipes): number {
    return this.#libc.spawn({
      file,
      argv: this.#libc.toVector(argv),
      environment:
        env === null ? this.#environment : this.#libc.toVector(toEnvironmentStrings(env)),
      cwd,
      stdio: [
        stdin === null ? this.#nullDevice : pipes.openStdin(),
        typeof stdout === 'number' ? stdout : pipes.openOutput(stdout),
        typeof stderr === 'number' ? stderr : pipes.openOutput(stderr),
      ],
    })
  }

  #handleExit(
    { pid, exitCode, signal, cpuSeconds, peakMemoryBytes }: ExitedChild,
    inheritedPeak: number,
  ) {
    const child = this.#children.get(pid)
    if (child === undefined) return
    this.#children.delete(pid)
    child.stdin?.destroy()
    for (const reader of child.readers) reader.finish()
    const peak = peakMemoryBytes > inheritedPeak ? { peakMemoryBytes } : {}
    const hasBackground = this.#libc.hasGroup(pid)
    child.watcher.ended({ exitCode, signal, at: machineMs(), hasBackground, cpuSeconds, ...peak })
  }
}

const toEnvironmentStrings = (environment: Readonly<Record<string, string>>): string[] =>
  Object.entries(environment).map(([name, value]) => `${name}=${value}`)

/** The pipes of one program. `closeProgramEnds` must be called once the program has started. */
class ProgramPipes {
  readonly readers: PipeReader[] = []
  readonly #libc: Libc
  readonly #programEnds: number[] = []
  #stdinEnd = -1

  constructor(libc: Libc) {
    this.#libc = libc
  }

  openOutput(capture: OutputCapture): number {
    const [ours, theirs] = this.#libc.pipe()
    this.#programEnds.push(theirs)
    this.readers.push(new PipeReader(this.#libc, ours, capture))
    return theirs
  }

  openStdin(): number {
    const [theirs, ours] = this.#libc.pipe()
    this.#programEnds.push(theirs)
    this.#stdinEnd = ours
    return theirs
  }

  /** Writes as much as the pipe accepts now. A socket writes the rest while the program reads. */
  writeStdin(bytes: Uint8Array): Socket | undefined {
    const written = this.#libc.writeSome(this.#stdinEnd, bytes)
    if (written === bytes.length) {
      this.#libc.close(this.#stdinEnd)
      return undefined
    }
    const socket = new Socket({ fd: this.#stdinEnd, readable: false, writable: true })
    // Ignores the error, because a program need not read its input.
    socket.on('error', () => {})
    socket.end(bytes.subarray(written))
    return socket
  }

  closeProgramEnds(): void {
    for (const descriptor of this.#programEnds) this.#libc.close(descriptor)
  }

  closeAll(): void {
    this.closeProgramEnds()
    for (const reader of this.readers) reader.finish()
    if (this.#stdinEnd !== -1) this.#libc.close(this.#stdinEnd)
  }
}

/** All readers share this buffer, because captures copy the bytes. */
const readBuffer = Buffer.allocUnsafeSlow(65_536)

class PipeReader {
  readonly #libc: Libc
  readonly #descriptor: number
  readonly #capture: OutputCapture
  #socket: Socket | undefined

  constructor(libc: Libc, descriptor: number, capture: OutputCapture) {
    this.#libc = libc
    this.#descriptor = descriptor
    this.#capture = capture
  }

  /** Reads output as it arrives, so that the program never waits for a full pipe. */
  stream(): void {
    this.#socket = new Socket({
      fd: this.#descriptor,
      readable: true,
      writable: false,
      onread: {
        buffer: readBuffer,
        callback: (bytes) => {
          this.#capture.push(readBuffer.subarray(0, bytes))
          return true
        },
      },
    })
    this.#socket.on('error', () => {})
    this.#socket.resume()
  }

  /** Reads the available output and closes the pipe, even if other processes hold it open. */
  finish(): void {
    const socket = this.#socket
    // A destroyed socket has already closed the descriptor, whose number may be in use again.
    if (socket?.destroyed === true) return
    this.#readRest()
    if (socket === undefined) this.#libc.close(this.#descriptor)
    else socket.destroy()
  }

  #readRest(): void {
    let left = this.#libc.readableBytes(this.#descriptor)
    while (left > 0) {
      const bytes = this.#libc.read(this.#descriptor, readBuffer, left)
      if (bytes === 0) return
      this.#capture.push(readBuffer.subarray(0, bytes))
      left -= bytes
    }
  }
}
