/** A function that runs on workers: it lives in a module of its own, which they import. */

import { defineTask } from 'tutti'

export const square = defineTask(import.meta.url, function square(n: number): number {
  return n * n
})
