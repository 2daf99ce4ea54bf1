/**
 * Failures: errors name the cause, retries are reported, and a cancellation is not a failure.
 */

import {
  ComputeTask,
  ConcurrentBackend,
  ExecutableFailedError,
  Session,
  TaskCanceledError,
  TaskFailedError,
} from 'tutti'
import { flaky, spin } from './tasks/troublesome.ts'

await using session = new Session([await ConcurrentBackend.create({ workers: 2 })])

const exits = new ComputeTask({ executable: 'sh', arguments: ['-c', 'echo oops >&2; exit 3'] })
const throws = new ComputeTask({ function: flaky, args: [1], retries: 1 })
const spins = new ComputeTask({ function: spin, timeoutSeconds: 0.1 })
const waits = new ComputeTask({ executable: 'sleep', arguments: ['60'] })
await session.submitTasks([exits, throws, spins, waits])
session.cancel(waits, 'no longer needed')
await session.waitTasks([exits, throws, spins, waits])

const { error } = exits
if (error instanceof ExecutableFailedError) console.log(error.exitCode, error.stderr.trim())
if (throws.error instanceof TaskFailedError) console.log(String(throws.error.cause))
if (spins.error instanceof TaskFailedError) console.log(String(spins.error.cause))
if (waits.error instanceof TaskCanceledError) console.log(waits.state, waits.error.reason)

// Output:
// 3 oops
// RangeError: 1 is odd
// TimeoutError: task task-000003 ran longer than 0.1 s
// CANCELED no longer needed
