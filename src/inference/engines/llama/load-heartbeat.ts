/** Sends signs of life and progress reports while a model's process loads the model. */

import type { Clock } from '../../../foundation/clock.ts'
import type { MessageFromLlama, LoadProgress } from './protocol.ts'

const heartbeatIntervalMs = 2000
/** Heartbeats stop after this time without progress: the file system may be dead. */
const stallTimeoutMs = 600_000

/** Needed because loading may take minutes, and the library rarely reports progress. */
export function startLoadHeartbeat(clock: Clock, send: (message: MessageFromLlama) => void) {
  let progressMs = clock.monotonicMs()
  let lastReport = ''
  const scheduleNext = (): (() => void) =>
    clock.after(heartbeatIntervalMs, () => {
      if (clock.monotonicMs() - progressMs <= stallTimeoutMs) send({ kind: 'alive' })
      cancel = scheduleNext()
    })
  let cancel = scheduleNext()
  return {
    /** Sends a message per tenth of a stage, because the library reports every small change. */
    report(progress: LoadProgress): void {
      progressMs = clock.monotonicMs()
      const newReport = `${progress.stage} ${Math.floor(progress.done * 10)}`
      if (newReport !== lastReport) send({ kind: 'progress', progress })
      lastReport = newReport
    },
    stop: (): void => cancel(),
  }
}
