/**
 * The memory that the main thread and the writer thread share: a ring of frames, the templates that
 * frames refer to, and one lock word. It contains everything that a writer needs, so either thread
 * can continue after any frame of the other.
 */

/** States of the lock. Only its owner writes to the file and moves the tail. */
export const lockStates = {
  free: 0,
  /** The main thread formats or writes. */
  main: 1,
  /** The thread formats a chunk. If the main thread takes the lock, the thread drops the chunk. */
  formatting: 2,
  /** The thread is in the system call. Its result must be awaited, unless the thread has died. */
  writing: 3,
  /** A write of the thread failed. The thread naps, and only the main thread may take the lock. */
  failed: 4,
} as const
const stateBits = 7
/** The bit of the lock word that selects the valid one of two copies of the writer's progress. */
const copyBit = 8

/** Words of 4 bytes at the start of the memory. */
const words = {
  lock: 0,
  head: 1,
  sleep: 2,
  wake: 3,
  stop: 4,
  threadId: 5,
  errnoLength: 6,
  errno: 8,
} as const
const maxErrnoBytes = 32
/** Numbers of 8 bytes: the two copies of the progress, then the thread's CPU time. */
const firstCopy = 16
const copyNumbers = 4
const cpuSeconds = firstCopy + 2 * copyNumbers
const controlBytes = 512
const templateBytes = 1_048_576
/** Positions in the ring count units of this many bytes, modulo 2^32. */
export const unitBytes = 8

/** How the thread waits: not at all, until a short time-out, or until it is woken. */
export const sleepStates = { awake: 0, napping: 1, asleep: 2 } as const

/** The progress of writing. It changes as a whole, together with the lock. */
export interface Progress {
  /** The first frame that is not completely in the file. */
  readonly tail: number
  /** The number of bytes of that frame's line that are in the file. */
  readonly skip: number
  readonly lines: number
  readonly bytes: number
}

export class SharedRecord {
  readonly memory: SharedArrayBuffer
  /** The ring as bytes. `ringWords` and `ringNumbers` are views of the same memory. */
  readonly ring: Uint8Array
  readonly ringWords: Int32Array
  readonly ringNumbers: Float64Array
  /** The size of the ring in units of `unitBytes`. */
  readonly ringUnits: number
  readonly templates: Buffer
  readonly #words: Int32Array
  readonly #numbers: Float64Array
  readonly #errno: Uint8Array

  /** `ringBytes` must be a power of two. */
  static create(ringBytes: number): SharedRecord {
    return new SharedRecord(new SharedArrayBuffer(controlBytes + templateBytes + ringBytes))
  }

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory
    this.#words = new Int32Array(memory, 0, firstCopy * 2)
    this.#numbers = new Float64Array(memory, 0, controlBytes / 8)
    this.#errno = new Uint8Array(memory, words.errno * 4, maxErrnoBytes)
    this.templates = Buffer.from(memory, controlBytes, templateBytes)
    const start = controlBytes + templateBytes
    this.ring = new Uint8Array(memory, start)
    this.ringWords = new Int32Array(memory, start)
    this.ringNumbers = new Float64Array(memory, start)
    this.ringUnits = this.ring.length / unitBytes
  }

  get head(): number {
    return Atomics.load(this.#words, words.head)
  }

  publishHead(head: number): void {
    Atomics.store(this.#words, words.head, head)
  }

  get lock(): number {
    return Atomics.load(this.#words, words.lock)
  }

  get lockState(): number {
    return this.lock & stateBits
  }

  /** Changes the state of the lock if the lock still has the value `seen`. */
  tryLock(seen: number, state: number): boolean {
    const next = (seen & copyBit) | state
    return Atomics.compareExchange(this.#words, words.lock, seen, next) === seen
  }

  /** Waits at most `ms` for the lock to have a value other than `seen`. */
  awaitLock(seen: number, ms: number): void {
    Atomics.wait(this.#words, words.lock, seen, ms)
  }

  notifyLock(): void {
    Atomics.notify(this.#words, words.lock)
  }

  /**
   * Replaces the progress and the state together, if the lock still has the value `seen`. So a
   * thread that dies has reported its write completely or not at all.
   */
  commit(seen: number, state: number, progress: Progress): boolean {
    const copy = (seen & copyBit) ^ copyBit
    const at = copyAt(copy)
    this.#numbers[at] = progress.tail
    this.#numbers[at + 1] = progress.skip
    this.#numbers[at + 2] = progress.lines
    this.#numbers[at + 3] = progress.bytes
    return Atomics.compareExchange(this.#words, words.lock, seen, copy | state) === seen
  }

  get progress(): Progress {
    const at = copyAt(this.lock)
    const { tail } = this
    const [, skip = 0, lines = 0, bytes = 0] = this.#numbers.subarray(at, at + copyNumbers)
    return { tail, skip, lines, bytes }
  }

  get tail(): number {
    return this.#numbers[copyAt(this.lock)] ?? 0
  }

  get linesWritten(): number {
    return this.#numbers[copyAt(this.lock) + 2] ?? 0
  }

  get bytesWritten(): number {
    return this.#numbers[copyAt(this.lock) + 3] ?? 0
  }

  get threadCpuSeconds(): number {
    return this.#numbers[cpuSeconds] ?? 0
  }

  set threadCpuSeconds(seconds: number) {
    this.#numbers[cpuSeconds] = seconds
  }

  /** The system's id of the thread; 0 until it runs, -1 if the system does not provide one. */
  get threadId(): number {
    return Atomics.load(this.#words, words.threadId)
  }

  set threadId(id: number) {
    Atomics.store(this.#words, words.threadId, id)
  }

  /** The system's name of the error of the thread's last write. */
  get errno(): string {
    const length = Atomics.load(this.#words, words.errnoLength)
    return Buffer.from(this.#errno.slice(0, length)).toString('latin1')
  }

  set errno(name: string) {
    const bytes = Buffer.from(name, 'latin1').subarray(0, maxErrnoBytes)
    this.#errno.set(bytes)
    Atomics.store(this.#words, words.errnoLength, bytes.length)
  }

  get isStopped(): boolean {
    return Atomics.load(this.#words, words.stop) !== 0
  }

  stop(): void {
    Atomics.store(this.#words, words.stop, 1)
    this.wake()
  }

  get sleepState(): number {
    return Atomics.load(this.#words, words.sleep)
  }

  wake(): void {
    Atomics.add(this.#words, words.wake, 1)
    Atomics.notify(this.#words, words.wake)
  }

  /** Waits until the thread is woken, at most `ms`. Does not wait if `hasWork` returns `true`. */
  sleep(state: number, ms: number, hasWork: () => boolean): void {
    const seen = Atomics.load(this.#words, words.wake)
    Atomics.store(this.#words, words.sleep, state)
    if (!this.isStopped && !hasWork()) Atomics.wait(this.#words, words.wake, seen, ms)
    Atomics.store(this.#words, words.sleep, sleepStates.awake)
  }
}

const copyAt = (lock: number): number =>
  (lock & copyBit) === 0 ? firstCopy : firstCopy + copyNumbers
