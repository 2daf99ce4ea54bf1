/** Functions that fail, each in its own way. */

import { defineTask } from 'tutti'

export const flaky = defineTask(import.meta.url, function flaky(n: number): number {
  if (n % 2 === 1) throw new RangeError(`${n} is odd`)
  return n
})

/** Never returns: it ends only with its worker. */
export const spin = defineTask(import.meta.url, function spin(): never {
  for (;;);
})
