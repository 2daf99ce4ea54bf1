/** Replaces `node:crypto` in the simulated code: the same, with random numbers of a seed. */

import type { randomFillSync as fillSync, randomInt as int } from 'node:crypto'
import { SeededRandom } from './seeded-random.ts'

// oxlint-disable-next-line import/export -- the functions below replace those of the same names
export * from 'node:crypto'

let random = new SeededRandom(0)

export function seedCrypto(seed: number): void {
  random = new SeededRandom(seed)
}

export const randomInt = ((first: number, second?: number) => {
  const [min, max] = second === undefined ? [0, first] : [first, second]
  return min + Math.floor((random.next() + random.next() / 2 ** 32) * (max - min))
}) as typeof int

export const randomFillSync = (<Bytes extends Buffer>(bytes: Bytes): Bytes => {
  for (let at = 0; at < bytes.length; at++) bytes[at] = random.integer(0, 255)
  return bytes
}) as unknown as typeof fillSync

export const randomBytes = (size: number): Buffer => randomFillSync(Buffer.alloc(size))

export function randomUUID(): string {
  const digits = randomBytes(16).toString('hex')
  return digits.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, '$1-$2-4$3-8$4-$5')
}
