/**
 * Data that is too large for a message and goes through the broker's object store. The message that
 * names it is signed, and the name has the digest: what the store returns is checked by it.
 */

import { createHash } from 'node:crypto'
import type { BrokerStore } from './broker.ts'

export const digestOf = (data: Uint8Array): string =>
  createHash('sha256').update(data).digest('hex')

/** Stores it; resolves with its name. */
export async function storeObject(
  store: BrokerStore,
  bucket: string,
  prefix: string,
  data: Uint8Array,
): Promise<string> {
  const name = `${prefix}/${digestOf(data)}`
  await store.putObject(bucket, name, data)
  return name
}

/** `null` when the store does not have it, or has something else under its name. */
export async function loadObject(
  store: BrokerStore,
  bucket: string,
  name: string,
): Promise<Uint8Array | null> {
  const data = await store.getObject(bucket, name)
  return data !== null && name.endsWith(`/${digestOf(data)}`) ? data : null
}
