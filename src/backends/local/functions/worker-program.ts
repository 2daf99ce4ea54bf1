/** A worker's program: a thread that shares a mailbox with its pool, or a process with its own. */

import {
  isMainThread,
  parentPort,
  receiveMessageOnPort,
  Worker,
  workerData,
} from 'node:worker_threads'
import { messageOf } from '../../../foundation/errors.ts'
import { currentTask } from '../../../foundation/task-context.ts'
import { toErrorRecord } from './error-record.ts'
import { JobRunner, type Outlet } from './job-runner.ts'
import { Mailbox } from './mailbox.ts'
import { type BatchMessage, type PackedBatch, unpackBatch } from './protocol.ts'
import { parentWatch } from './worker-link.ts'

if (isMainThread) serveProcess()
else serveThread((workerData as { memory: SharedArrayBuffer }).memory)

function serveThread(memory: SharedArrayBuffer): void {
  const port = parentPort
  if (port === null) return
  const listen = (take: (batch: BatchMessage) => void): void => {
    port.on('message', (batch: PackedBatch) => take(unpackBatch(batch)))
  }
  serve(new Mailbox(memory), listen, {
    // The most frequent message, so it is the smallest.
    post: (message) => port.postMessage(message.kind === 'passed' ? null : message),
    began: () => {},
    ended: () => {},
    poll() {
      const found = receiveMessageOnPort(port)
      return found === undefined ? null : unpackBatch(found.message as PackedBatch)
    },
    exit: () => process.exit(1),
  })
}

function serveProcess(): void {
  const mailbox = new Mailbox()
  const send = (message: object): boolean => process.send?.(message) ?? false
  process.on('disconnect', () => process.exit(1))
  // Ctrl-C reaches the whole terminal; what becomes of the tasks is the parent's decision.
  process.on('SIGINT', () => {})
  const listen = (take: (batch: BatchMessage) => void): void => {
    process.on('message', (batch: BatchMessage) => {
      mailbox.reset(batch.bank, batch.jobs.length / 3)
      take(batch)
    })
  }
  serve(mailbox, listen, {
    post(message) {
      // The channel's own serializer lets objects pass that a clone would not keep whole.
      if (message.kind === 'value') structuredClone(message.value)
      send(message)
    },
    began: (slot) => void send({ kind: 'began', slot, at: mailbox.starts[slot] }),
    ended(slot) {
      const isTold = mailbox.isLeftToMessage(slot)
      const [start, end] = [mailbox.starts[slot], mailbox.ends[slot]]
      const value = isTold ? undefined : mailbox.read(slot)
      send({ kind: 'ended', slot, start, end, isTold, value })
    },
    poll: () => null,
    // A callback that comes after everything before it was written.
    exit: () => void process.send?.({ kind: 'passed' }, () => process.exit(1)),
  })
  const resourceLimits = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 }
  new Worker(parentWatch, { workerData: { parent: process.ppid }, resourceLimits }).unref()
}

function serve(
  mailbox: Mailbox,
  listen: (take: (batch: BatchMessage) => void) => void,
  outlet: Outlet,
): void {
  const runner = new JobRunner(mailbox, outlet)
  // Whoever broke it, the worker cannot be trusted any more. Only the culprit may be blamed for
  // that: if it has ended, the job that runs now may end, too.
  const endAfter = (what: string) => (thrown: unknown) => {
    const reason = `${what}: ${messageOf(thrown)}`
    outlet.post({ kind: 'dying', reason, error: toErrorRecord(thrown) })
    const culprit = currentTask()
    if (culprit === undefined || culprit === runner.running) outlet.exit()
    else runner.die()
  }
  process.on('uncaughtException', endAfter('uncaught exception'))
  process.on('unhandledRejection', endAfter('unhandled rejection'))
  listen((batch) => runner.take(batch))
  outlet.post({ kind: 'ready' })
}
