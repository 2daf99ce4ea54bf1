/** Starts the thread that writes the record. */

import type {
  WriterThreadData,
  WriterThreadListener,
} from '../checkpoint/writing/writer-options.ts'
import type { WriterThread } from '../checkpoint/writing/main-lock.ts'
import { messageOf } from '../foundation/errors.ts'
import { startSiblingThread } from '../runtime/supervised-child.ts'

/** Small limits are enough, because the thread formats all lines in one buffer. */
const resourceLimits = { maxYoungGenerationSizeMb: 4, maxOldGenerationSizeMb: 64, stackSizeMb: 1 }

/** The thread does not keep the process alive. Throws if it cannot start. */
export function startRecordThread(
  data: WriterThreadData,
  listener: WriterThreadListener,
): WriterThread {
  const worker = startSiblingThread(import.meta.url, 'record-program', {
    name: 'tutti record',
    resourceLimits,
    workerData: data,
  })
  let reason = ''
  worker.on('message', () => listener.failed())
  worker.on('error', (error: unknown) => (reason = messageOf(error)))
  const { promise, resolve } = Promise.withResolvers<void>()
  worker.on('exit', (code) => {
    listener.ended(reason === '' ? `exit code ${code}` : reason)
    resolve()
  })
  // Called after the listeners are added, because each of them makes the thread keep the process
  // alive.
  worker.unref()
  return {
    ended() {
      worker.ref()
      return promise
    },
  }
}
