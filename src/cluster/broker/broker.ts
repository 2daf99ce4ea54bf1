/** The port of the message broker and its store. It knows neither jobs nor keys. */

/** A message received from the broker. */
export interface BrokerMessage {
  readonly subject: string
  readonly data: Uint8Array
  /** Answers the message, if it was sent by `request`. */
  respond(data: Uint8Array): void
}

/**
 * A client's connection. It reconnects automatically until it is closed. Messages that are
 * published while it is down may be lost without an error.
 */
export interface Broker {
  /** The URL of the server, without credentials. */
  readonly url: string
  readonly isConnected: boolean
  /** The id of the connected server. A restarted server has another id. */
  readonly serverId: string
  /** The maximum size of a message, in bytes. */
  readonly maxPayload: number
  readonly store: BrokerStore
  publish(subject: string, data: Uint8Array): void
  /** `onMessage` must not throw. Returns a function that ends the subscription. */
  subscribe(subject: string, onMessage: (message: BrokerMessage) => void): () => void
  /**
   * Rejects with `NoResponderError` without a subscriber, with `TimeoutError` without an answer.
   */
  request(subject: string, data: Uint8Array, timeoutMs: number): Promise<Uint8Array>
  /** Like `request`, but ignores answers that are not accepted: any client may have subscribed. */
  requestAccepted(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
    accepts: (answer: Uint8Array) => boolean,
  ): Promise<Uint8Array>
  /** Calls the listener on each disconnect and reconnect. Returns a function that unsubscribes. */
  onConnection(listener: (isConnected: boolean) => void): () => void
  close(): Promise<void>
}

/** A message that is stored in a stream. */
export interface StoredMessage {
  readonly subject: string
  readonly data: Uint8Array
}

export interface StoredStream {
  readonly name: string
  readonly messages: number
  /** When the stream was created or got its last message, in seconds since the epoch. */
  readonly usedAt: number
  readonly maxAgeSeconds: number
}

export interface StoredObject {
  readonly data: Uint8Array
  /** The sequence numbers of the object's pieces in the stream. */
  readonly pieces: readonly number[]
}

export interface StreamSettings {
  readonly subjects: readonly string[]
  readonly maxAgeSeconds: number
  /** A non-empty text that is stored with the stream when it is created, and does not change. */
  readonly label: string
}

export interface OpenedStream {
  readonly isCreated: boolean
  /** The label that was set when the stream was created. */
  readonly label: string
}

/** The state of a stream, and how many messages of one subject it has. */
export interface StreamState {
  /** When the stream was created. Distinguishes it from a later stream of the same name. */
  readonly created: string
  /** The label that was set when the stream was created. */
  readonly label: string
  readonly messages: number
}

/** How far a stream has been read. */
export interface StreamPosition {
  /** When the stream was created. Distinguishes it from a later stream of the same name. */
  readonly created: string
  readonly sequence: number
}

/**
 * Streams of messages that the server keeps on disk, and objects in these streams. Every call has a
 * time limit; a large value takes several calls of the server.
 */
export interface BrokerStore {
  /** Creates the stream unless it exists, and ensures that it stores these subjects. */
  openStream(name: string, settings: StreamSettings): Promise<OpenedStream>
  hasStream(name: string): Promise<boolean>
  /** `null` if there is no such stream. */
  findStream(name: string, subject: string): Promise<StreamState | null>
  /** Lists all streams whose names begin with this prefix. */
  listStreams(prefix: string): Promise<StoredStream[]>
  /**
   * Publishes a message and resolves when a stream has stored it. Subscribers receive it
   * immediately. Rejects with `NoRoomError` if the store is full.
   */
  append(subject: string, data: Uint8Array, timeoutMs: number): Promise<void>
  /** The sequence number of the last message of a subject; 0 without a message or a stream. */
  lastSequence(stream: string, subject: string): Promise<number>
  /**
   * Like `append`, but only if the last message of the subject has this sequence number, otherwise
   * `false`. If several clients append after the same message, one succeeds. Rejects with
   * `StoreFullError` if there is no room now.
   */
  appendAfter(subject: string, data: Uint8Array, sequence: number): Promise<boolean>
  /** Reads the messages of a subject that follow `after` and are in the stream now, in order. */
  read(
    stream: string,
    subject: string,
    after: StreamPosition | null,
  ): Promise<{ readonly messages: readonly StoredMessage[]; readonly position: StreamPosition }>
  /**
   * Examines the next few hundred messages of a subject from sequence number `from`, and removes
   * those that `mayRemove` accepts. Resolves with the number to continue from, 1 after the last.
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
   * Stores an object below this subject, which a stream must store. May be repeated. If it fails or
   * is aborted, the stored pieces are removed again. Rejects with `StoreFullError` if there is no
   * room now.
   */
  putObject(subject: string, data: Uint8Array, signal: AbortSignal): Promise<void>
  usage(): Promise<StoreUsage>
  /** `null` if the stream, or a piece of the object, is missing. */
  getObject(stream: string, subject: string): Promise<StoredObject | null>
  /** `pieces` are the numbers that `getObject` returned, if the object was read. */
  deleteObject(stream: string, subject: string, pieces?: readonly number[]): Promise<void>
}

/** How much the account stores, and its limit; `null` if the server does not report a limit. */
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
  /** How much the account stored when the object was refused. */
  readonly heldBytes: number
  /** How much of `heldBytes` belonged to the object. */
  readonly storedBytes: number
  /** How much the whole object requires. */
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

/** The subject of a request has no subscriber: the process that should answer is gone. */
export class NoResponderError extends Error {
  override readonly name = 'NoResponderError'
}
