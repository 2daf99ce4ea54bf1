/** The port of the message broker, and of what it stores. It knows no jobs and no keys. */

/** A message of the broker. */
export interface BrokerMessage {
  readonly subject: string
  readonly data: Uint8Array
  /** Answers it, if it was sent by `request`. */
  respond(data: Uint8Array): void
}

/**
 * One client's connection. It reconnects by itself for as long as it is not closed. What is
 * published while it is down may be lost without an error.
 */
export interface Broker {
  /** Of the server, without credentials. */
  readonly url: string
  readonly isConnected: boolean
  /** Of the server that it is connected to; a server that is started again has another one. */
  readonly serverId: string
  /** The largest message, in bytes. */
  readonly maxPayload: number
  readonly store: BrokerStore
  publish(subject: string, data: Uint8Array): void
  /** `onMessage` must not throw. Returns the end of the subscription. */
  subscribe(subject: string, onMessage: (message: BrokerMessage) => void): () => void
  /** Rejects with `NoResponderError` when nobody has subscribed, with `TimeoutError` in time. */
  request(subject: string, data: Uint8Array, timeoutMs: number): Promise<Uint8Array>
  /** Like `request`, but waits for an answer that is accepted: anybody may have subscribed. */
  requestAccepted(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
    accepts: (answer: Uint8Array) => boolean,
  ): Promise<Uint8Array>
  /** Called when the connection is lost and when it is back. Returns the end of this. */
  onConnection(listener: (isConnected: boolean) => void): () => void
  close(): Promise<void>
}

/** What a stream has of one message. */
export interface StoredMessage {
  readonly subject: string
  readonly data: Uint8Array
}

export interface StoredStream {
  readonly name: string
  readonly messages: number
  /** When it was created, or got its last message; in seconds since the epoch. */
  readonly usedAt: number
  readonly maxAgeSeconds: number
}

export interface StoredObject {
  readonly data: Uint8Array
  /** Where the stream has its parts. */
  readonly pieces: readonly number[]
}

export interface StreamSettings {
  readonly subjects: readonly string[]
  readonly maxAgeSeconds: number
  /** Kept with the stream for as long as it is there: that of whoever creates it. Not empty. */
  readonly label: string
}

export interface OpenedStream {
  readonly isCreated: boolean
  /** That of whoever has created it. */
  readonly label: string
}

/** What a stream has of a subject. */
export interface StreamState {
  /** When the stream was created: a later one of the same name is another stream. */
  readonly created: string
  /** That of whoever has created it. */
  readonly label: string
  readonly messages: number
}

/** How far a stream was read. */
export interface StreamPosition {
  /** When the stream was created: a later one of the same name is another stream. */
  readonly created: string
  readonly sequence: number
}

/**
 * Streams of messages, kept by the server on its disk, and objects in them. Every call ends in
 * time, with an error if it must be; a value that is large takes several calls of the server.
 */
export interface BrokerStore {
  /** Creates the stream unless it is there. It has these subjects. */
  openStream(name: string, settings: StreamSettings): Promise<OpenedStream>
  hasStream(name: string): Promise<boolean>
  /** `null` when there is no such stream. */
  findStream(name: string, subject: string): Promise<StreamState | null>
  /** All streams whose names begin so. */
  listStreams(prefix: string): Promise<StoredStream[]>
  /**
   * Publishes a message; resolves when a stream has it. Subscribers get it at once. Rejects with
   * `NoRoomError` if the store is full.
   */
  append(subject: string, data: Uint8Array, timeoutMs: number): Promise<void>
  /** The place of the last message of a subject; 0 if there is none, or no stream. */
  lastSequence(stream: string, subject: string): Promise<number>
  /**
   * Like `append`, if the last message of the subject is at this place. `false` when it is not:
   * of several who append after the same message one succeeds. Rejects with `StoreFullError` if
   * there is no room for it now.
   */
  appendAfter(subject: string, data: Uint8Array, sequence: number): Promise<boolean>
  /** The messages of a subject that the stream has now, in order, and were not read `after`. */
  read(
    stream: string,
    subject: string,
    after: StreamPosition | null,
  ): Promise<{ readonly messages: readonly StoredMessage[]; readonly position: StreamPosition }>
  /**
   * Looks at the next few hundred messages of a subject, from this place on, and removes those that
   * `mayRemove` agrees to. Resolves with the place to go on from, 1 after the last message.
   */
  removeFirst(
    stream: string,
    subject: string,
    from: number,
    mayRemove: (data: Uint8Array) => boolean,
  ): Promise<{ readonly removed: number; readonly next: number }>
  /** Removes the stream and its objects; a missing one is fine. */
  remove(stream: string): Promise<void>
  /**
   * Stores an object below this subject, which a stream must have. May be repeated. What was stored
   * of one that fails or is aborted is removed again. Rejects with `StoreFullError` if there is no
   * room for it now.
   */
  putObject(subject: string, data: Uint8Array, signal: AbortSignal): Promise<void>
  usage(): Promise<StoreUsage>
  /** `null` when the stream, or a part of the object, is not there. */
  getObject(stream: string, subject: string): Promise<StoredObject | null>
  /** `pieces` are those that were read, if it was. */
  deleteObject(stream: string, subject: string, pieces?: readonly number[]): Promise<void>
}

/** What the store has of the account, and what it takes of it; `null` if that is not told. */
export interface StoreUsage {
  readonly heldBytes: number
  readonly limitBytes: number | null
}

/** The store is full. */
export class NoRoomError extends Error {
  override readonly name: string = 'NoRoomError'
}

export const isNoRoom = (error: unknown): boolean => error instanceof NoRoomError

/** There is no room for an object. */
export class StoreFullError extends NoRoomError implements StoreUsage {
  override readonly name = 'StoreFullError'
  /** What the store had then of the account. */
  readonly heldBytes: number
  /** What of that was of the object. */
  readonly storedBytes: number
  /** What the object would take in all. */
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

/** Nobody has subscribed to the subject of a request: the process behind it is gone. */
export class NoResponderError extends Error {
  override readonly name = 'NoResponderError'
}
