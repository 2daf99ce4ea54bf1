/** A process's connection to the simulated server. Messages of a direction arrive in order. */

import {
  type Broker,
  type BrokerMessage,
  type BrokerStore,
  NoResponderError,
} from '../../src/cluster/broker/broker.ts'
import { TimeoutError } from '../../src/foundation/errors.ts'
import { matchesSubject, type SimulatedNats } from './simulated-nats.ts'
import type { SeededRandom } from './seeded-random.ts'
import type { SimulatedProcess, VirtualTime } from './virtual-time.ts'

interface Subscription {
  readonly subject: string
  readonly onMessage: (message: BrokerMessage) => void
}

interface Direction {
  lastArrivalMs: number
  stalledUntilMs: number
}

export type DirectionName = 'toServer' | 'fromServer'

export interface ConnectionOptions {
  readonly server: SimulatedNats
  readonly time: VirtualTime
  readonly random: SeededRandom
  readonly process: SimulatedProcess
  readonly maxPayload: number
}

const callTimeoutMs = 4000
/** The client closes a connection after this time without an answer to its pings. */
const pingTimeoutMs = 6000
const reconnectDelayMs = [100, 200] as const
const latencyMs = [0.05, 2] as const
const slowLatencyMs = [5, 60] as const
const slowChance = 0.02
const faultyChance = 0.2

export class SimulatedConnection implements Broker {
  readonly url = 'simulated'
  readonly store: BrokerStore
  readonly maxPayload: number
  readonly #options: ConnectionOptions
  readonly #subscriptions = new Set<Subscription>()
  readonly #listeners = new Set<(isConnected: boolean) => void>()
  readonly #directions: Readonly<Record<DirectionName, Direction>> = {
    toServer: { lastArrivalMs: 0, stalledUntilMs: 0 },
    fromServer: { lastArrivalMs: 0, stalledUntilMs: 0 },
  }
  /** What the client sends after it has reconnected. */
  #unsent: (() => void)[] = []
  #losesUntilMs = 0
  #repeatsUntilMs = 0
  #link = 1
  #isClosed = false
  isConnected = true

  constructor(options: ConnectionOptions) {
    const { server, maxPayload } = options
    this.#options = options
    this.maxPayload = maxPayload
    this.store = this.#createStore()
    server.connections.add(this)
  }

  get server(): SimulatedNats {
    return this.#options.server
  }

  publish(subject: string, data: Uint8Array): void {
    if (this.#isClosed) return
    this.#send(() => void this.#options.server.publish(subject, data, () => {}))
  }

  subscribe(subject: string, onMessage: (message: BrokerMessage) => void): () => void {
    const subscription = { subject, onMessage }
    this.#subscriptions.add(subscription)
    return () => this.#subscriptions.delete(subscription)
  }

  request(subject: string, data: Uint8Array, timeoutMs: number): Promise<Uint8Array> {
    return this.requestAccepted(subject, data, timeoutMs, () => true)
  }

  requestAccepted(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
    accepts: (answer: Uint8Array) => boolean,
  ): Promise<Uint8Array> {
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>()
    const accept = (answer: Uint8Array): boolean => {
      const isAccepted = accepts(answer)
      if (isAccepted) resolve(answer)
      return isAccepted
    }
    this.ask(subject, data, accept, reject, timeoutMs)
    return promise
  }

  /** Sends a request. `onAnswer` returns whether the answer is the wanted one. */
  ask(
    subject: string,
    data: Uint8Array,
    onAnswer: (answer: Uint8Array) => boolean,
    onError: (error: unknown) => void,
    timeoutMs: number,
  ): void {
    const { server, process } = this.#options
    let isOver = false
    const fail = (error: unknown): void => {
      if (!isOver) onError(error)
      isOver = true
    }
    const cancel = process.clock.after(timeoutMs, () => fail(new TimeoutError('no answer')))
    const respond = (answer: Uint8Array): void =>
      this.#receive(() => {
        if (isOver || !onAnswer(answer)) return
        isOver = true
        cancel()
      })
    this.#send(() => {
      if (server.publish(subject, data, respond)) return
      this.#receive(() => fail(new NoResponderError('nobody subscribes')))
    })
  }

  onConnection(listener: (isConnected: boolean) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  close(): Promise<void> {
    this.#isClosed = true
    this.#subscriptions.clear()
    this.#listeners.clear()
    this.#options.server.connections.delete(this)
    return Promise.resolve()
  }

  /** Called by the server. `false` if this connection does not subscribe to the subject. */
  deliver(message: BrokerMessage): boolean {
    const { subject, data } = message
    let isReceived = false
    for (const subscription of this.#subscriptions) {
      if (!matchesSubject(subscription.subject, subject)) continue
      isReceived = true
      this.#receive(() => {
        if (!this.#subscriptions.has(subscription)) return
        const answer = (content: Uint8Array): void => this.#send(() => message.respond(content))
        subscription.onMessage({ subject, data, respond: answer })
      })
    }
    return isReceived
  }

  /** Breaks the connection: messages that have not arrived are lost. The client reconnects. */
  break(): void {
    const { server, process } = this.#options
    if (!server.connections.delete(this)) return
    this.#link++
    process.do(() => {
      this.#setConnected(false)
      this.#reconnectLater()
    })
  }

  /** Delays the messages of a direction. The client notices a long delay and reconnects. */
  stall(name: DirectionName, ms: number): void {
    const { time, process } = this.#options
    this.#directions[name].stalledUntilMs = time.nowMs + ms
    if (ms < pingTimeoutMs) return
    const link = this.#link
    process.clock.after(pingTimeoutMs, () => {
      if (this.#link === link) this.break()
    })
  }

  /** For this time, loses some messages in both directions. */
  loseMessages(ms: number): void {
    this.#losesUntilMs = this.#options.time.nowMs + ms
  }

  /** For this time, some messages arrive twice. */
  repeatMessages(ms: number): void {
    this.#repeatsUntilMs = this.#options.time.nowMs + ms
  }

  #reconnectLater(): void {
    const { random, process, server } = this.#options
    process.clock.after(random.between(...reconnectDelayMs), () => {
      if (this.#isClosed) return
      if (!server.isUp) return this.#reconnectLater()
      server.connections.add(this)
      for (const direction of Object.values(this.#directions)) {
        direction.lastArrivalMs = 0
        direction.stalledUntilMs = 0
      }
      const unsent = this.#unsent
      this.#unsent = []
      this.#setConnected(true)
      for (const send of unsent) send()
    })
  }

  #setConnected(isConnected: boolean): void {
    this.isConnected = isConnected
    for (const listener of this.#listeners) listener(isConnected)
  }

  #send(arrive: () => void): void {
    if (this.isConnected) this.#transmit('toServer', arrive)
    else this.#unsent.push(() => this.#transmit('toServer', arrive))
  }

  #receive(arrive: () => void): void {
    this.#transmit('fromServer', () => this.#options.process.do(arrive))
  }

  #transmit(name: DirectionName, arrive: () => void): void {
    const { random, time, server } = this.#options
    const direction = this.#directions[name]
    const [minMs, maxMs] = random.chance(slowChance) ? slowLatencyMs : latencyMs
    const arrivalMs = Math.max(
      time.nowMs + random.between(minMs, maxMs),
      direction.lastArrivalMs,
      direction.stalledUntilMs,
    )
    direction.lastArrivalMs = arrivalMs
    const link = this.#link
    const arriveOnce = (): void => {
      if (this.#link === link && server.connections.has(this)) arrive()
    }
    if (time.nowMs < this.#losesUntilMs && random.chance(faultyChance)) return
    time.at(arrivalMs, arriveOnce)
    if (time.nowMs >= this.#repeatsUntilMs || !random.chance(faultyChance)) return
    time.at(arrivalMs + random.between(...slowLatencyMs), arriveOnce)
  }

  #call<T>(execute: () => T, timeoutMs = callTimeoutMs): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    this.call(execute, resolve, reject, timeoutMs)
    return promise
  }

  /** Calls the server. The answer may be lost although the call was executed. */
  call<T>(
    execute: () => T,
    onValue: (value: T) => void,
    onError: (error: unknown) => void,
    timeoutMs = callTimeoutMs,
  ): void {
    let isOver = false
    const end = (then: () => void): void => {
      if (isOver) return
      isOver = true
      cancel()
      then()
    }
    const cancel = this.#options.process.clock.after(timeoutMs, () =>
      end(() => onError(new TimeoutError('no answer'))),
    )
    this.#send(() => {
      try {
        const value = execute()
        this.#receive(() => end(() => onValue(value)))
      } catch (error) {
        this.#receive(() => end(() => onError(error)))
      }
    })
  }

  #createStore(): BrokerStore {
    const { server } = this.#options
    return {
      openStream: (name, settings) => this.#call(() => server.openStream(name, settings)),
      findStream: (name) => this.#call(() => server.findStream(name)),
      listStreams: (prefix) => this.#call(() => server.listStreams(prefix)),
      append: (subject, data, timeoutMs) =>
        this.#call(() => server.append(subject, data), timeoutMs),
      lastSequence: (stream, subject) => this.#call(() => server.lastSequence(stream, subject)),
      appendAfter: (subject, data, sequence) =>
        this.#call(() => server.appendAfter(subject, data, sequence)),
      read: (stream, subject, after) => this.#call(() => server.read(stream, subject, after)),
      removeFirst: (stream, subject, from, mayRemove) =>
        this.#call(() => server.removeFirst(stream, subject, from, mayRemove)),
      remove: (stream) => this.#call(() => server.remove(stream)),
      putObject: (subject, data) => this.#call(() => server.putObject(subject, data)),
      usage: () => this.#call(() => server.usage()),
      getObject: (stream, subject) => this.#call(() => server.getObject(stream, subject)),
      deleteObject: (stream, subject) => this.#call(() => server.deleteObject(stream, subject)),
    }
  }
}
