/** The functions of the C library that a launcher calls directly. Linux with glibc only. */

import { constants } from 'node:os'

type Call = (...parameters: readonly unknown[]) => number

/** The parts of the package koffi that are used. */
export interface Koffi {
  load(path: string): { func(name: string, result: string, parameters: string[]): Call }
  address(memory: Uint8Array): bigint
  errno(): number
}

/** These constants are the same on all 64-bit Linux systems. */
const closeOnExec = 0o2000000
const nonBlocking = 0o4000
const setFlags = 4
const countReadable = 0x541b
const noHang = 1
/** A process group of its own, default signal handlers, an empty signal mask. */
const spawnFlags = 0x02 | 0x04 | 0x08
/** `struct rusage`: two times of two longs each, then the peak in KiB, then 13 more longs. */
const usageBytes = 144
const peakOffset = 32
/** Larger than each of glibc's opaque structures (80, 336 and 128 bytes). */
const structBytes = 512

export interface Reaped {
  readonly pid: number
  readonly exitCode: number | null
  readonly signal: string | null
  readonly cpuSeconds: number
  readonly peakMemoryBytes: number
}

export interface SpawnCall {
  readonly file: string
  readonly argv: Uint8Array
  readonly environment: Uint8Array
  readonly cwd: string
  /** The descriptors that become 0, 1 and 2. */
  readonly stdio: readonly [number, number, number]
}

/** Calls block the thread. They throw a `LibcError` on failure. */
export class Libc {
  readonly #koffi: Koffi
  readonly #calls: Readonly<Record<keyof typeof signatures, Call>>
  readonly #attributes = memory(structBytes)
  readonly #actions = memory(structBytes)
  readonly #usage = memory(usageBytes)
  readonly #numbers = new Int32Array(new ArrayBuffer(8))

  constructor(koffi: Koffi) {
    const library = koffi.load('libc.so.6')
    const bound = Object.entries(signatures).map(([name, [result, ...parameters]]) => [
      name,
      library.func(name, result, [...parameters]),
    ])
    this.#koffi = koffi
    this.#calls = Object.fromEntries(bound) as Record<keyof typeof signatures, Call>
    const signals = memory(structBytes)
    this.#calls.posix_spawnattr_init(this.#attributes)
    this.#calls.posix_spawnattr_setflags(this.#attributes, spawnFlags)
    this.#calls.posix_spawnattr_setpgroup(this.#attributes, 0)
    this.#calls.posix_spawnattr_setsigmask(this.#attributes, signals)
    // Sets all bits, because sigfillset omits two signals, which would then stay ignored.
    signals.fill(0xff)
    this.#calls.posix_spawnattr_setsigdefault(this.#attributes, signals)
  }

  /** Returns the reading and the writing end. Programs inherit neither. */
  pipe(): [number, number] {
    if (this.#calls.pipe2(this.#numbers, closeOnExec) !== 0)
      throw new LibcError(this.#koffi.errno())
    return [this.#numbers[0] ?? -1, this.#numbers[1] ?? -1]
  }

  close(descriptor: number): void {
    this.#calls.close(descriptor)
  }

  /** How many bytes can be read without blocking. */
  readable(descriptor: number): number {
    this.#numbers[0] = 0
    this.#calls.ioctl(descriptor, countReadable, this.#numbers)
    return this.#numbers[0]
  }

  /** Returns how many bytes were read; 0 at the end of the file and after an error. */
  read(descriptor: number, into: Uint8Array, max: number): number {
    return Math.max(0, this.#calls.read(descriptor, into, Math.min(max, into.length)))
  }

  /** Makes the pipe non-blocking and writes as much as it accepts. */
  writeSome(descriptor: number, bytes: Uint8Array): number {
    this.#calls.fcntl(descriptor, setFlags, nonBlocking)
    return Math.max(0, this.#calls.write(descriptor, bytes, bytes.length))
  }

  /** Starts a program as the leader of a new process group and returns its process id. */
  spawn({ file, argv, environment, cwd, stdio }: SpawnCall): number {
    const calls = this.#calls
    const actions = this.#actions
    calls.posix_spawn_file_actions_init(actions)
    calls.posix_spawn_file_actions_addchdir_np(actions, cwd)
    for (const [target, source] of stdio.entries()) {
      calls.posix_spawn_file_actions_adddup2(actions, source, target)
    }
    const pid = this.#numbers
    const errno = calls.posix_spawn(pid, file, actions, this.#attributes, argv, environment)
    calls.posix_spawn_file_actions_destroy(actions)
    if (errno !== 0) throw new LibcError(errno)
    return pid[0] ?? 0
  }

  /** Whether the process group has a member. */
  hasGroup(group: number): boolean {
    return this.#calls.kill(-group, 0) === 0
  }

  /** A child that has ended, if there is one. */
  reap(): Reaped | undefined {
    const pid = this.#calls.wait4(-1, this.#numbers, noHang, this.#usage)
    if (pid <= 0) return undefined
    const status = this.#numbers[0] ?? 0
    const signal = status & 0x7f
    return {
      pid,
      exitCode: signal === 0 ? (status >> 8) & 0xff : null,
      signal: signal === 0 ? null : (signalNames.get(signal) ?? `signal ${signal}`),
      cpuSeconds: this.#secondsAt(0) + this.#secondsAt(16),
      peakMemoryBytes: Number(this.#usage.readBigInt64LE(peakOffset)) * 1024,
    }
  }

  /** A null-terminated array of C strings: the pointers, followed by the strings themselves. */
  toVector(strings: readonly string[]): Uint8Array {
    const bytes = strings.map((text) => Buffer.from(`${text}\0`))
    const headBytes = 8 * (bytes.length + 1)
    const vector = memory(bytes.reduce((sum, { length }) => sum + length, headBytes))
    const address = this.#koffi.address(vector)
    let at = headBytes
    for (const [index, text] of bytes.entries()) {
      vector.writeBigUInt64LE(address + BigInt(at), index * 8)
      vector.set(text, at)
      at += text.length
    }
    return vector
  }

  #secondsAt(offset: number): number {
    const microseconds = Number(this.#usage.readBigInt64LE(offset + 8))
    return Number(this.#usage.readBigInt64LE(offset)) + microseconds / 1e6
  }
}

/** A failed call; `code` is the name of the errno. */
class LibcError extends Error {
  readonly code: string

  constructor(errno: number) {
    const code = errorNames.get(errno) ?? `errno ${errno}`
    super(code)
    this.code = code
  }
}

/** Zeroed memory with a fixed address. */
const memory = (bytes: number): Buffer<ArrayBuffer> => Buffer.from(new ArrayBuffer(bytes))

/** Reversed, because the first of several names for a number is the usual one. */
const byNumber = (names: object): Map<number, string> =>
  new Map(
    Object.entries(names)
      .toReversed()
      .map(([name, number]) => [Number(number), name]),
  )
const signalNames = byNumber(constants.signals)
const errorNames = byNumber(constants.errno)

/**
 * The result and parameters of each function. Variadic functions are bound with the fixed
 * parameters that are used, which works on Linux.
 */
const signatures = {
  pipe2: ['int', 'int *', 'int'],
  close: ['int', 'int'],
  read: ['int64_t', 'int', 'void *', 'size_t'],
  write: ['int64_t', 'int', 'void *', 'size_t'],
  fcntl: ['int', 'int', 'int', 'int'],
  ioctl: ['int', 'int', 'unsigned long', 'int *'],
  kill: ['int', 'int', 'int'],
  wait4: ['int', 'int', 'int *', 'int', 'void *'],
  posix_spawn: ['int', 'int *', 'str', 'void *', 'void *', 'void *', 'void *'],
  posix_spawnattr_init: ['int', 'void *'],
  posix_spawnattr_setflags: ['int', 'void *', 'short'],
  posix_spawnattr_setpgroup: ['int', 'void *', 'int'],
  posix_spawnattr_setsigmask: ['int', 'void *', 'void *'],
  posix_spawnattr_setsigdefault: ['int', 'void *', 'void *'],
  posix_spawn_file_actions_init: ['int', 'void *'],
  posix_spawn_file_actions_destroy: ['int', 'void *'],
  posix_spawn_file_actions_adddup2: ['int', 'void *', 'int', 'int'],
  posix_spawn_file_actions_addchdir_np: ['int', 'void *', 'str'],
} as const
