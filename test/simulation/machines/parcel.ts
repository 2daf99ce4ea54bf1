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

export const contentOf = <Content>(data: Uint8Array): Content =>
  (data as unknown as Parcel).content as Content

/** The messages of a stream that agents have appended. */
export const contentsOf = <Content>(messages: readonly StoredMessage[]): readonly Content[] =>
  messages.map(({ data }) => contentOf<Content>(data))

export const streamName = 'stream'
export const streamSubjects = ['ends.*', 'claim', 'objects.>']
