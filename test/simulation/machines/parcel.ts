/** Messages between machines, which a simulation passes on without encoding them. */

import type { StoredMessage } from '../../../src/cluster/broker/broker.ts'

interface Parcel {
  readonly content: unknown
  readonly length: number
}

const usualLength = 200

/** The simulated server asks for nothing but the length of a message. */
export const toParcel = (content: unknown, length = usualLength): Uint8Array =>
  ({ content, length }) satisfies Parcel as unknown as Uint8Array

export const contentOf = (data: Uint8Array): unknown => (data as unknown as Parcel).content

/** The messages of a stream that agents have appended. */
export const contentsOf = (messages: readonly StoredMessage[]): readonly unknown[] =>
  messages.map(({ data }) => contentOf(data))

export const streamName = 'stream'
export const streamSubjects = ['ends.*', 'claim', 'objects.>']
