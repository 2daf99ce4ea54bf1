/**
 * A thread that kills its process when the parent is gone, even while the main thread is blocked.
 */

import { workerData } from 'node:worker_threads'
import { systemClock } from '../foundation/clock.ts'

const pollMs = 1000
const { parent } = workerData as { readonly parent: number }

function poll(): void {
  if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL')
  systemClock.after(pollMs, poll)
}

poll()
