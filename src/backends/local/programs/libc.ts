/** Functions of the C library that a launcher calls directly. Only for Linux with glibc. */

import { constants } from 'node:os'

type NativeCall = (...parameters: readonly unknown[]) => number

export interface Koffi {
  load(path: string): { func(name: string, result: string, parameters: string[]): NativeCall }
  address(allocate: Uint8Array): bigint
  errno(): number
}

/** Constants that are the same on all 64-bit Linux systems. */
const closeOnExec = 0o2000000
const nonBlocking = 0o4000
const fcntlSetFlags = 4
const ioctlReadableBytes = 0x541b
const waitNoHang = 1
/** Flags for a new process group, default signal handlers and an empty signal mask. */
const spawnFlags = 0x02 | 0x04 | 0x08
/** `struct rusage`: two times of two longs each, the peak memory in KiB, and 13 more longs. */
const usageBytes = 144
const peakOffset = 32
/** A size that is larger than each of glibc's opaque structures (80, 336 and 128 bytes). */
const structBytes = 512

export interface ExitedChild {
  readonly pid: number
  readonly exitCode: number | null
  readonly signal: string | null
  readonly cpuSeconds: number
  readonly peakMemoryBytes: number
}

export interface SpawnRequest {
  readonly file: string
  readonly argv: Uint8Array
  readonly environment: Uint8Array
  readonly cwd: string
  readonly stdio: readonly [number, number, number]
}

/** Calls the C library. `pipe` and `spawn` throw a `LibcError` on failure. */
export class Libc {
  readonly #koffi: Koffi
  readonly #calls: Readonly<Record<keyof typeof signatures, NativeCall>>
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
    this.#calls = Object.fromEntries(bound) as Record<keyof typeof signatures, NativeCall>
    const signals = memory(structBytes)
    this.#calls.posix_spawnattr_init(this.#attributes)
    this.#calls.posix_spawnattr_setflags(this.#attributes, spawnFlags)
    this.#calls.posix_spawnattr_setpgroup(this.#attributes, 0)
    this.#calls.posix_spawnattr_setsigmask(this.#attributes, signals)
    // All bits are set, because sigfillset omits two signals, which would stay ignored.
    signals.fill(0xff)
    this.#calls.posix_spawnattr_setsigdefault(this.#attributes, signals)
  }

  /** Creates a pipe. Returns the read end and the write end. Programs inherit neither. */
  pipe(): [number, number] {
    if (this.#calls.pipe2(this.#numbers, closeOnExec) !== 0)
      throw new LibcError(this.#koffi.errno())
    return [this.#numbers[0] ?? -1, this.#numbers[1] ?? -1]
  }

  close(descriptor: number): void {
    this.#calls.close(descriptor)
  }

  readableBytes(descriptor: number): number {
    this.#numbers[0] = 0
    this.#calls.ioctl(descriptor, ioctlReadableBytes, this.#numbers)
    return this.#numbers[0]
  }

  /** Reads bytes. Returns their number, which is 0 at the end of the file and after an error. */
  read(descriptor: number, into: Uint8Array, max: number): number {
    return Math.max(0, this.#calls.read(descriptor, into, Math.min(max, into.length)))
  }

  /** Makes the pipe non-blocking and writes as much as it accepts. Returns the number of bytes. */
  writeSome(descriptor: number, bytes: Uint8Array): number {
    this.#calls.fcntl(descriptor, fcntlSetFlags, nonBlocking)
    return Math.max(0, this.#calls.write(descriptor, bytes, bytes.length))
  }

  /** Starts a program as the leader of a new process group and returns its process id. */
  spawn({ file, argv, environment, cwd, stdio }: SpawnRequest): number {
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

  hasGroup(group: number): boolean {
    return this.#calls.kill(-group, 0) === 0
  }

  reap(): ExitedChild | undefined {
    const pid = this.#calls.wait4(-1, this.#numbers, waitNoHang, this.#usage)
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

  /** A null-terminated array of C strings. The pointers come first, then the strings. */
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

/** A failed call. `code` is the name of the errno. */
class LibcError extends Error {
  readonly code: string

  constructor(errno: number) {
    const code = errorNames.get(errno) ?? `errno ${errno}`
    super(code)
    this.code = code
  }
}

/** Allocates zeroed memory with a fixed address. */
const memory = (bytes: number): Buffer<ArrayBuffer> => Buffer.from(new ArrayBuffer(bytes))

/**
 * Maps numbers to names. Reverses the entries, so that the first of several names for a number
 * wins.
 */
const invertNames = (names: object): Map<number, string> =>
  new Map(
    Object.entries(names)
      .toReversed()
      .map(([name, number]) => [Number(number), name]),
  )
const signalNames = invertNames(constants.signals)
const errorNames = invertNames(constants.errno)

/** Result and parameter types. Variadic functions are bound with fixed parameters (Linux). */
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
