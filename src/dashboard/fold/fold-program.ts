/** The thread of a dashboard that reads a record or a folder and answers queries about it. */

import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../../foundation/clock.ts'
import { messageOf, StateError } from '../../foundation/errors.ts'
import { statOf } from '../../foundation/regular-file.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import { shareColumns } from '../../views/columns.ts'
import { lowerPriority } from '../queries/sentences/thread-limits.ts'
import type { FoldThreadData, FoldRequest, FromFold, ToFold } from './fold-messages.ts'
import { FolderFold } from './folder-fold.ts'
import { RecordFold } from './record-fold.ts'

const { path } = workerData as FoldThreadData
// The thread that computes the sentences reads the same columns.
shareColumns()

/** Callbacks for the main thread's answers to `isWriting` messages, by their id. */
const isWritingCallbacks = new Map<number, (isWriting: boolean) => void>()
let lastId = 0

const writers: RecordWriterStates = {
  isWriting(folder, sessionId) {
    const id = ++lastId
    const { promise, resolve } = Promise.withResolvers<boolean>()
    isWritingCallbacks.set(id, resolve)
    send({ kind: 'isWriting', id, folder, sessionId })
    return promise.then((isWriting) => {
      // The run has precedence over its viewers.
      if (isWriting) lowerPriority()
      return isWriting
    })
  },
}

const fold =
  statOf(path)?.isDirectory() === true
    ? new FolderFold(path, writers, systemClock)
    : new RecordFold({ path, clock: systemClock, writers })
/** The approximate number of characters in a piece of the report. */
const pieceLength = 65_536
let report: Iterator<string> | null = null

/** The requests that are being handled, by their id. */
const handled = new Map<number, AbortController>()

parentPort?.on('message', (message: ToFold) => {
  if (message.kind === 'cancel') {
    handled.get(message.id)?.abort()
    return
  }
  if (message.kind === 'writing') {
    isWritingCallbacks.get(message.id)?.(message.isWriting)
    isWritingCallbacks.delete(message.id)
    return
  }
  const { id, request } = message
  const controller = new AbortController()
  handled.set(id, controller)
  handle(request, controller.signal)
    .then(
      (text) => send({ kind: 'reply', id, text }),
      (error: unknown) => send({ kind: 'failure', id, message: messageOf(error) }),
    )
    .finally(() => handled.delete(id))
})

async function handle(request: FoldRequest, signal: AbortSignal): Promise<string | null> {
  if (request.kind === 'refresh') return await fold.refresh()
  if (request.kind === 'answer') {
    return await fold.answer(request.query, { telemetry: request.telemetry, signal })
  }
  if (fold instanceof FolderFold) throw new StateError('choose one of the runs first')
  if (request.isFirst) report = (await fold.report())[Symbol.iterator]()
  return nextPiece()
}

/** Returns the next piece; `null` after the last one. */
function nextPiece(): string | null {
  let text = ''
  while (report !== null && text.length < pieceLength) {
    const next = report.next()
    if (next.done === true) report = null
    else text += next.value
  }
  return text === '' ? null : text
}

function send(message: FromFold): void {
  parentPort?.postMessage(message)
}
