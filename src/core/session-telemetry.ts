/** The telemetry of a session, including the poller of its backends' nodes. */

import { ResourcePoller } from '../backends/sampling/poller.ts'
import type { Clock } from '../foundation/clock.ts'
import { TelemetryManager } from '../telemetry/manager.ts'
import { type FollowerParts, OutputFollower } from './output-follower.ts'
import type { RecordParts, TelemetryOptions } from '../telemetry/options.ts'

type SessionTelemetryParts = TelemetryOptions & Required<Pick<TelemetryOptions, 'clock' | 'log'>>

export class SessionTelemetry extends TelemetryManager {
  /** `start()` does not start it: the session does so when its backends have been added. */
  readonly poller: ResourcePoller
  readonly #clock: Clock
  #follower: OutputFollower | null = null

  constructor(options: SessionTelemetryParts, record: RecordParts, pollSeconds: number) {
    super(options, record)
    const { clock, log, sessionId } = options
    const parts = { clock, log, sessionId, sink: this, intervalSeconds: pollSeconds }
    this.poller = new ResourcePoller(parts)
    this.#clock = clock
  }

  /** Lets commands read the output of running programs from now on, if there is a record. */
  followOutputs(find: FollowerParts['find']): void {
    if (this.checkpointFile === null) return
    this.#follower = new OutputFollower({ clock: this.#clock, record: this.checkpointFile, find })
    this.#follower.start()
  }

  /** Stores the value that a task returned, for a later run. */
  keepValue(uid: string, value: unknown): void {
    this.keepInRecord(uid, value)
  }

  /** Polls a last time before SessionEnded, even if the application itself stops telemetry. */
  protected override async onStop(): Promise<void> {
    await this.poller.stop()
    await this.#follower?.stop()
    await super.onStop()
  }
}
