/** The program of a worker, which is a thread or a process. */

import { isMainThread, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { messageOf } from '../../../foundation/errors.ts'
import { currentTask } from '../../../foundation/task-context.ts'
import { toEnvelope } from '../../../runtime/channel.ts'
import { connectToParent } from '../../../runtime/child-program.ts'
import { toErrorRecord } from '../../../foundation/error-record.ts'
import { JobRunner, type PoolLink } from './job-runner.ts'
import { Mailbox } from './mailbox.ts'
import {
  type AbortMessage,
  type BatchMessage,
  type PackedBatch,
  unpackBatch,
  type WorkerMessage,
} from './protocol.ts'
import type { ThreadData } from './thread-link.ts'

if (isMainThread) serveProcess()
else serveThread(takeThreadData())

/** Clears `workerData`, because user code can see it and must not find the channel. */
function takeThreadData(): ThreadData {
  const { memory, channel } = workerData as ThreadData
  for (const key of Object.keys(workerData as object)) {
    Reflect.deleteProperty(workerData as object, key)
  }
  return { memory, channel }
}

function serveThread({ memory, channel }: ThreadData): void {
  const port = parentPort
  if (port === null) return
  const runner = serve(new Mailbox(memory), {
    post(message) {
      // The most frequent message is sent as the bare channel id.
      port.postMessage(message.kind === 'passed' ? channel : toEnvelope(channel, [message]))
    },
    onImport: () => {},
    onStart: () => {},
    onEnd: () => {},
    pollBatch() {
      for (;;) {
        const found = receiveMessageOnPort(port)
        if (found === undefined) return null
        const message = found.message as PackedBatch | AbortMessage
        // Abort requests are ignored here. They are for ended jobs, because no job runs while the
        // next batch is awaited.
        if (!('abort' in message)) return unpackBatch(message)
      }
    },
    exit: () => process.exit(1),
  })
  port.on('message', (message: PackedBatch | AbortMessage) => {
    if ('abort' in message) runner.abort(message)
    else runner.addBatch(unpackBatch(message))
  })
  port.postMessage(toEnvelope(channel, 'ready'))
}

function serveProcess(): void {
  // Ignores Ctrl-C, which reaches all processes of a terminal. The parent ends the tasks.
  process.on('SIGINT', () => {})
  const mailbox = new Mailbox()
  const runner = serve(mailbox, {
    post(message) {
      // Clones the value, because the channel's serializer copies some objects incompletely and
      // would call getters a second time.
      const isValue = message.kind === 'value'
      parent.send(isValue ? { ...message, value: structuredClone(message.value) } : message)
    },
    onImport: (slot) => parent.send({ kind: 'importing', slot, at: mailbox.importStart }),
    onStart: (slot) => parent.send({ kind: 'began', slot, at: mailbox.starts[slot] ?? 0 }),
    onEnd(slot) {
      const hasMessage = mailbox.isSentAsMessage(slot)
      const [start = 0, end = 0] = [mailbox.starts[slot], mailbox.ends[slot]]
      const value = hasMessage ? undefined : mailbox.read(slot)
      parent.send({ kind: 'ended', slot, start, end, hasMessage, value })
    },
    pollBatch: () => null,
    exit: () => void parent.drain().then(() => process.exit(1)),
  })
  const parent = connectToParent<BatchMessage | AbortMessage, WorkerMessage>({
    onMessage(batch) {
      if ('abort' in batch) return runner.abort(batch)
      mailbox.reset(batch.bank, batch.jobs.length / 3)
      runner.addBatch(batch)
    },
    onEnd: () => process.exit(1),
    runsUserCode: true,
  })
}

function serve(mailbox: Mailbox, link: PoolLink): JobRunner {
  const runner = new JobRunner(mailbox, link)
  // Exits after an uncaught error, because the worker's state cannot be trusted any more. Only the
  // job that threw may fail, so if another job runs by now, the worker exits after that job.
  const endAfterError = (what: string) => (thrown: unknown) => {
    const reason = `${what}: ${messageOf(thrown)}`
    link.post({ kind: 'dying', reason, error: toErrorRecord(thrown) })
    const failedUid = currentTask()?.uid
    if (failedUid === undefined || failedUid === runner.runningUid) link.exit()
    else runner.shutDown()
  }
  process.on('uncaughtException', endAfterError('uncaught exception'))
  process.on('unhandledRejection', endAfterError('unhandled rejection'))
  return runner
}
