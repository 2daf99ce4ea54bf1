/** A thread of a worker process that ends it when the parent is gone, even if a function spins. */

import { workerData } from 'node:worker_threads'
import { systemClock } from '../../../foundation/clock.ts'

const lookMs = 1000
const { parent } = workerData as { readonly parent: number }

function look(): void {
  if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL')
  systemClock.after(lookMs, look)
}

look()
