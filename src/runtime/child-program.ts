/**
 * The child's side of a `SupervisedChild`. Every program that a `SupervisedChild` starts must call
 * it.
 */

import { systemClock } from '../foundation/clock.ts'
import {
  channelVariable,
  guardInternalMessages,
  MessageBatcher,
  type MessageBatcherOptions,
  openEnvelope,
  toEnvelope,
} from './channel.ts'

type Pace = Pick<MessageBatcherOptions<unknown>, 'minIntervalMs' | 'maxInFlight'>

export interface ChildProgramOptions<In> extends Pace {
  onMessage(message: In): void
  /** Called once when the parent asks this program to exit, or is gone. The program must exit. */
  onEnd(isParentGone: boolean): void
  /** Also kills the process if the parent is gone and the main thread is blocked. */
  readonly runsForeignCode?: boolean
}

/**
 * Reports to the parent that this program is ready, and returns the batcher for messages to it.
 * Messages without the channel's id are ignored. A failure to send is not an error: the parent is
 * gone, and `onEnd` is called.
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
  if (options.runsForeignCode === true) void watchParent()
  // Without a callback, a write to a parent that has just died would be an uncaught error.
  const send = (content: readonly Out[] | 'ready', onSent: () => void): void => {
    if (!process.connected) return onSent()
    process.send?.(toEnvelope(channel, content), undefined, undefined, onSent)
  }
  send('ready', () => {})
  return new MessageBatcher<Out>({ ...options, clock: systemClock, send })
}

/** Imported lazily: most children need no threads, and loading a module delays each of them. */
async function watchParent(): Promise<void> {
  const { Worker } = await import('node:worker_threads')
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  const resourceLimits = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 }
  const program = new URL(`./parent-watch${extension}`, import.meta.url)
  new Worker(program, { workerData: { parent: process.ppid }, resourceLimits }).unref()
}
