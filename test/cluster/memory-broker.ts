/** A broker in memory, without a store, for one process. */

import {
  type Broker,
  type BrokerMessage,
  type BrokerStore,
  NoResponderError,
} from '../../src/cluster/broker/broker.ts'

type Listener = (message: BrokerMessage) => void

export class MemoryBroker implements Broker {
  readonly url = 'memory'
  readonly isConnected = true
  readonly maxPayload = 1_048_576
  readonly #listeners = new Map<string, Set<Listener>>()

  get store(): BrokerStore {
    throw new Error('it stores nothing')
  }

  publish(subject: string, data: Uint8Array): void {
    this.#send({ subject, data, respond() {} })
  }

  subscribe(subject: string, onMessage: Listener): () => void {
    const listeners = this.#listeners.get(subject) ?? new Set()
    this.#listeners.set(subject, listeners.add(onMessage))
    return () => listeners.delete(onMessage)
  }

  request(subject: string, data: Uint8Array): Promise<Uint8Array> {
    return this.requestAccepted(subject, data, 0, () => true)
  }

  /** Answers come immediately, or never. */
  requestAccepted(
    subject: string,
    data: Uint8Array,
    _: number,
    accepts: (answer: Uint8Array) => boolean,
  ): Promise<Uint8Array> {
    const answers: Uint8Array[] = []
    this.#send({ subject, data, respond: (answer) => void answers.push(answer) })
    const found = answers.find(accepts)
    if (found !== undefined) return Promise.resolve(found)
    return Promise.reject(new NoResponderError('nobody answers'))
  }

  onConnection(): () => void {
    return () => {}
  }

  close(): Promise<void> {
    return Promise.resolve()
  }

  #send(message: BrokerMessage): void {
    for (const listener of this.#listeners.get(message.subject) ?? []) listener(message)
  }
}
