/** Starts programs with posix_spawn and reads their usage from wait4. Needs the package koffi. */

import { openSync } from 'node:fs'
import { Socket } from 'node:net'
import type * as Koffi from 'koffi'
import { errnoOf } from '../../../foundation/errors.ts'
import { importPeer } from '../../../runtime/import-peer.ts'
import { Libc, type Reaped } from './libc.ts'
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
  readonly #nothing = openSync('/dev/null', 'r')
  readonly #children = new Map<number, Child>()

  /**
   * Throws if koffi, or a function of the C library that it calls, is missing. Call `reap` on
   * SIGCHLD.
   */
  static async create(environment: Readonly<Record<string, string>>): Promise<KoffiSpawner> {
    const { default: koffi } = await importPeer<typeof Koffi>('koffi')
    return new KoffiSpawner(new Libc(koffi), environment)
  }

  private constructor(libc: Libc, environment: Readonly<Record<string, string>>) {
    this.#libc = libc
    this.#environment = libc.toVector(toStrings(environment))
  }

  spawn(plan: SpawnPlan, watcher: ProgramWatcher): number {
    const ends = new PipeEnds(this.#libc)
    let pid: number
    try {
      pid = this.#spawn(plan, ends)
    } catch (error) {
      ends.closeAll()
      watcher.failed(errnoOf(error))
      return 0
    }
    ends.closeTheirs()
    const stdin = plan.stdin === null ? undefined : ends.feed(plan.stdin)
    this.#children.set(pid, { watcher, readers: ends.readers, stdin })
    return pid
  }

  settle(pid: number): void {
    for (const reader of this.#children.get(pid)?.readers ?? []) reader.stream()
  }

  /** Handles all children that have ended. */
  reap(): void {
    // A new process inherits the peak memory of its parent, so a peak up to the parent's is not its
    // own.
    const inheritedPeak = process.resourceUsage().maxRSS * 1024
    for (let reaped = this.#libc.reap(); reaped !== undefined; reaped = this.#libc.reap()) {
      this.#end(reaped, inheritedPeak)
    }
  }

  #spawn({ file, argv, cwd, env, stdin, stdout, stderr }: SpawnPlan, ends: PipeEnds): number {
    return this.#libc.spawn({
      file,
      argv: this.#libc.toVector(argv),
      environment: env === null ? this.#environment : this.#libc.toVector(toStrings(env)),
      cwd,
      stdio: [
        stdin === null ? this.#nothing : ends.toProgram(),
        typeof stdout === 'number' ? stdout : ends.fromProgram(stdout),
        typeof stderr === 'number' ? stderr : ends.fromProgram(stderr),
      ],
    })
  }

  #end({ pid, exitCode, signal, cpuSeconds, peakMemoryBytes }: Reaped, inheritedPeak: number) {
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

const toStrings = (environment: Readonly<Record<string, string>>): string[] =>
  Object.entries(environment).map(([name, value]) => `${name}=${value}`)

/** The pipes of one start. The program's ends are closed here once the program has them. */
class PipeEnds {
  readonly readers: PipeReader[] = []
  readonly #libc: Libc
  readonly #theirs: number[] = []
  #ourStdin = -1

  constructor(libc: Libc) {
    this.#libc = libc
  }

  fromProgram(capture: OutputCapture): number {
    const [ours, theirs] = this.#libc.pipe()
    this.#theirs.push(theirs)
    this.readers.push(new PipeReader(this.#libc, ours, capture))
    return theirs
  }

  toProgram(): number {
    const [theirs, ours] = this.#libc.pipe()
    this.#theirs.push(theirs)
    this.#ourStdin = ours
    return theirs
  }

  /** Writes as much as the pipe accepts at once; a socket writes the rest as the program reads. */
  feed(bytes: Uint8Array): Socket | undefined {
    const written = this.#libc.writeSome(this.#ourStdin, bytes)
    if (written === bytes.length) {
      this.#libc.close(this.#ourStdin)
      return undefined
    }
    const socket = new Socket({ fd: this.#ourStdin, readable: false, writable: true })
    // Ignored, because a program need not read its input.
    socket.on('error', () => {})
    socket.end(bytes.subarray(written))
    return socket
  }

  closeTheirs(): void {
    for (const descriptor of this.#theirs) this.#libc.close(descriptor)
  }

  closeAll(): void {
    this.closeTheirs()
    for (const reader of this.readers) reader.finish()
    if (this.#ourStdin !== -1) this.#libc.close(this.#ourStdin)
  }
}

/** Shared by all readers: captures copy the bytes before the next read. */
const readBuffer = Buffer.allocUnsafeSlow(65_536)

/** Reads output from a pipe: at the exit of a short program, as a stream for a longer one. */
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

  /** Reads output as it arrives, so that a full pipe never blocks the program. */
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

  /** Reads what is in the pipe now and closes it, even if other processes still hold it open. */
  finish(): void {
    const socket = this.#socket
    // A socket at its end has closed the descriptor, whose number may be reused by now.
    if (socket?.destroyed === true) return
    this.#takeRest()
    if (socket === undefined) this.#libc.close(this.#descriptor)
    else socket.destroy()
  }

  #takeRest(): void {
    let left = this.#libc.readable(this.#descriptor)
    while (left > 0) {
      const bytes = this.#libc.read(this.#descriptor, readBuffer, left)
      if (bytes === 0) return
      this.#capture.push(readBuffer.subarray(0, bytes))
      left -= bytes
    }
  }
}
