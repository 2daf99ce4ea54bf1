/** A broker in memory, for parts that only publish and subscribe. Requests are never answered. */

import type { Broker, BrokerMessage, BrokerStore } from '../../src/cluster/broker/broker.ts'

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
    for (const listener of this.#listeners.get(subject) ?? []) {
      listener({ subject, data, respond() {} })
    }
  }

  subscribe(subject: string, onMessage: Listener): () => void {
    const listeners = this.#listeners.get(subject) ?? new Set()
    this.#listeners.set(subject, listeners.add(onMessage))
    return () => listeners.delete(onMessage)
  }

  request(): Promise<never> {
    return Promise.reject(new Error('nobody answers'))
  }

  requestAccepted(): Promise<never> {
    return this.request()
  }

  onConnection(): () => void {
    return () => {}
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}
