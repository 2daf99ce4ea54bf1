/** The child's side of a `SupervisedChild`. Every such program calls `connectToParent`. */

import { systemClock } from '../foundation/clock.ts'
import {
  channelVariable,
  guardInternalMessages,
  MessageBatcher,
  type MessageBatcherOptions,
  openEnvelope,
  toEnvelope,
} from './channel.ts'

type BatchLimits = Pick<MessageBatcherOptions<unknown>, 'minIntervalMs' | 'maxInFlight'>

export interface ChildProgramOptions<In> extends BatchLimits {
  onMessage(message: In): void
  /** Called once when the parent requests the exit or is gone. The program must then exit. */
  onEnd(isParentGone: boolean): void
  /**
   * Whether a separate thread ends this process when the parent is gone. Needed if user code may
   * block the main thread.
   */
  readonly runsUserCode?: boolean
}

/**
 * Reports to the parent that this program is ready, and returns the batcher for messages to it.
 * Messages without the channel id are ignored. Messages to a parent that is gone are dropped.
 */
export function connectToParent<In, Out>(options: ChildProgramOptions<In>): MessageBatcher<Out> {
  const channel = Number(process.env[channelVariable])
  delete process.env[channelVariable]
  let isEnding = false
  const end = (isParentGone: boolean): void => {
    if (isEnding) return
    isEnding = true
    options.onEnd(isParentGone)
  }
  guardInternalMessages(process, () => {})
  process.on('message', (received) => {
    const content = openEnvelope(channel, received)
    if (content === 'end') end(false)
    else if (Array.isArray(content)) for (const message of content) options.onMessage(message as In)
  })
  process.on('disconnect', () => end(true))
  if (options.runsUserCode === true) void watchParent()
  // Every message is sent with a callback: without one, an error of a write to a dead parent would
  // be uncaught.
  const send = (content: readonly Out[] | 'ready', onSent: () => void): void => {
    if (!process.connected) return onSent()
    process.send?.(toEnvelope(channel, content), undefined, undefined, onSent)
  }
  send('ready', () => {})
  return new MessageBatcher<Out>({ ...options, clock: systemClock, send })
}

/**
 * Starts a thread that watches the parent. The module for threads is imported only here, because
 * most children need no threads.
 */
async function watchParent(): Promise<void> {
  const { Worker } = await import('node:worker_threads')
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  const resourceLimits = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 }
  const program = new URL(`./parent-watch${extension}`, import.meta.url)
  new Worker(program, { workerData: { parent: process.ppid }, resourceLimits }).unref()
}
