/** The interface to the message broker and its store. It knows neither jobs nor keys. */

export interface BrokerMessage {
  readonly subject: string
  readonly data: Uint8Array
  respond(data: Uint8Array): void
}

/**
 * Reconnects automatically. Messages published while it is disconnected may be lost without an
 * error.
 */
export interface Broker {
  /** The URL of the server, without credentials. */
  readonly url: string
  readonly isConnected: boolean
  /** The maximum size of a message, in bytes. */
  readonly maxPayload: number
  readonly store: BrokerStore
  publish(subject: string, data: Uint8Array): void
  /** Returns a function that ends the subscription. `onMessage` must not throw. */
  subscribe(subject: string, onMessage: (message: BrokerMessage) => void): () => void
  /** Rejects with `NoResponderError` if nobody subscribes, `TimeoutError` if nobody answers. */
  request(subject: string, data: Uint8Array, timeoutMs: number): Promise<Uint8Array>
  /** Like `request`, but ignores answers for which `accepts` is `false`: any client may answer. */
  requestAccepted(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
    accepts: (answer: Uint8Array) => boolean,
  ): Promise<Uint8Array>
  onConnection(listener: (isConnected: boolean) => void): () => void
  close(): Promise<void>
}

export interface StoredMessage {
  readonly subject: string
  readonly data: Uint8Array
}

export interface StoredStream {
  readonly name: string
  readonly messages: number
  /** When the stream was created or received its last message, in seconds since the epoch. */
  readonly usedAt: number
  readonly maxAgeSeconds: number
}

export interface StoredObject {
  readonly data: Uint8Array
  readonly chunks: readonly number[]
}

export interface StreamSettings {
  readonly subjects: readonly string[]
  readonly maxAgeSeconds: number
  /** A non-empty text that is stored with the stream when it is created, and does not change. */
  readonly label: string
}

export interface StreamState {
  /** When the stream was created. Distinguishes it from a later stream of the same name. */
  readonly created: string
  readonly label: string
}

export interface OpenedStream extends StreamState {
  readonly isCreated: boolean
}

/** How far a stream has been read. */
export interface StreamPosition {
  readonly created: string
  readonly sequence: number
}

/** Streams on the server's disk, and objects in them. Every request has a time limit. */
export interface BrokerStore {
  /** Creates the stream unless it exists, and ensures that it stores these subjects. */
  openStream(name: string, settings: StreamSettings): Promise<OpenedStream>
  findStream(name: string): Promise<StreamState | null>
  listStreams(prefix: string): Promise<StoredStream[]>
  /** Resolves when a stream has the message. Rejects with `NoRoomError` if the store is full. */
  append(subject: string, data: Uint8Array, timeoutMs: number): Promise<void>
  /** The sequence number of the subject's last message; 0 if there is none. */
  lastSequence(stream: string, subject: string): Promise<number>
  /** Appends only if `sequence` is the subject's last one. Otherwise resolves with `false`. */
  appendAfter(subject: string, data: Uint8Array, sequence: number): Promise<boolean>
  /** Reads the messages of a subject after position `after`, in order. */
  read(
    stream: string,
    subject: string,
    after: StreamPosition | null,
  ): Promise<{ readonly messages: readonly StoredMessage[]; readonly position: StreamPosition }>
  /**
   * Examines a few hundred messages of the subject from number `from`, and removes those that
   * `mayRemove` accepts. `next` is where to continue, or 1 at the end.
   */
  removeFirst(
    stream: string,
    subject: string,
    from: number,
    mayRemove: (data: Uint8Array) => boolean,
  ): Promise<{ readonly removed: number; readonly next: number }>
  /** Removes the stream and its objects. Also resolves if there is no such stream. */
  remove(stream: string): Promise<void>
  /**
   * Stores an object. Safe to repeat. If it fails or is aborted, removes the stored chunks. Rejects
   * with `StoreFullError` if there is no room now.
   */
  putObject(subject: string, data: Uint8Array, signal: AbortSignal): Promise<void>
  usage(): Promise<StoreUsage>
  /** Resolves with `null` if the stream or a chunk of the object is missing. */
  getObject(stream: string, subject: string): Promise<StoredObject | null>
  /** `chunks` is the list that `getObject` returned. If it is omitted, the object is read first. */
  deleteObject(stream: string, subject: string, chunks?: readonly number[]): Promise<void>
}

/** The limit is `null` if the server does not report one. */
export interface StoreUsage {
  readonly heldBytes: number
  readonly limitBytes: number | null
}

/** Thrown if the store is full. */
export class NoRoomError extends Error {
  override readonly name: string = 'NoRoomError'
}

export const isNoRoom = (error: unknown): boolean => error instanceof NoRoomError

/** Thrown if there is no room for an object now. */
export class StoreFullError extends NoRoomError implements StoreUsage {
  override readonly name = 'StoreFullError'
  readonly heldBytes: number
  /** The part of `heldBytes` that the chunks of this object used. */
  readonly storedBytes: number
  readonly neededBytes: number
  readonly limitBytes: number | null

  constructor(
    usage: StoreUsage,
    object: Pick<StoreFullError, 'storedBytes' | 'neededBytes'>,
    cause: Error,
  ) {
    super(cause.message, { cause })
    this.heldBytes = usage.heldBytes
    this.limitBytes = usage.limitBytes
    this.storedBytes = object.storedBytes
    this.neededBytes = object.neededBytes
  }
}

/** Thrown if the subject of a request has no subscriber: the process that should answer is gone. */
export class NoResponderError extends Error {
  override readonly name = 'NoResponderError'
}
