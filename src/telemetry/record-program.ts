/**
 * The thread that writes the record: reads lines from shared memory and writes them to the file.
 */

import { parentPort, workerData } from 'node:worker_threads'
import { writeSync } from 'node:fs'
import { readlinkSync } from 'node:fs'
import type { WriterThreadData } from '../checkpoint/writing/writer-options.ts'
import { ChunkWriter } from '../checkpoint/writing/chunk-writer.ts'
import { lockStates, SharedRecord, sleepStates } from '../checkpoint/writing/shared-record.ts'
import { DerivedIds } from '../events/derived-ids.ts'
import { tryRead } from '../foundation/errors.ts'

/** Lines that arrive within this time share one write. */
const napMs = 5
/** After this many naps without new lines, the thread sleeps until it is woken. */
const maxNaps = 20

const { memory, fd, key } = workerData as WriterThreadData
const record = new SharedRecord(memory)
const chunks = new ChunkWriter(record, new DerivedIds(key), { write: writeSync }, fd)
// The last part of the link, as in `123/task/456`, is the id of the thread.
const link = tryRead(() => readlinkSync('/proc/thread-self')) ?? ''
record.threadId = Number(link.split('/').at(-1)) || -1

const hasWork = (): boolean => record.lockState === lockStates.free && record.head !== record.tail

for (let naps = 0; !record.isStopped;) {
  const { isWritten, isFull } = chunks.writeNext()
  if (record.lockState === lockStates.failed) parentPort?.postMessage('failed')
  if (isWritten) naps = 0
  if (isFull) continue
  reportCpu()
  naps++
  if (naps <= maxNaps) record.sleep(sleepStates.napping, napMs, () => false)
  else record.sleep(sleepStates.asleep, Infinity, hasWork)
}
reportCpu()
// Ends only this thread. Modules that the application preloads may have timers, which would keep it
// running, and `close()` waits for its end.
process.exit()

function reportCpu(): void {
  const usage = process.threadCpuUsage?.()
  if (usage !== undefined) record.threadCpuSeconds = (usage.user + usage.system) / 1e6
}
