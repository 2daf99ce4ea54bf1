/** Converts times of agents' clocks. No event gets a time before its cause. */

import type { Moment } from '../../../tasks/lifecycle.ts'
import type { DriverJob, RemoteAgent } from './remote-agent.ts'
import { type EventSource, toMoment } from './clock-offset.ts'

/**
 * Returns when an attempt began, and stores that time in `one`. `atMs` is when the attempt ended,
 * or `beganMs` if it has not ended. Both are by the agent's clock.
 */
export function toStartMoment(
  one: DriverJob,
  agent: RemoteAgent | null,
  { beganMs, atMs }: { readonly beganMs: number; readonly atMs: number },
  now: Moment,
): Moment {
  const at = toMoment(toLocalMs(one, agent, beganMs, now.monotonicMs - atMs + beganMs), now)
  one.startedMs = at.monotonicMs
  one.beganMs = beganMs
  one.latestSeconds = Math.max(one.latestSeconds, at.wallSeconds)
  return at
}

/** Returns the time of an event, which is never before the task's start or its earlier events. */
export function toEventSeconds(
  one: DriverJob | undefined,
  offset: EventSource['offset'],
  atMs: number,
  now: Moment,
): number {
  const localMs = shiftFromStart(one, atMs) ?? offset?.toLocalMs(atMs) ?? now.monotonicMs
  if (one === undefined) return toMoment(localMs, now).wallSeconds
  // A continued task may have begun before this start of the driver submitted it.
  const { wallSeconds } = toMoment(Math.max(localMs, one.submittedMs), now)
  one.latestSeconds = Math.max(one.latestSeconds, wallSeconds)
  return one.latestSeconds
}

/** Returns when an attempt ended, which is never before a reported event of the attempt. */
export function toEndMoment(
  one: DriverJob,
  agent: RemoteAgent | null,
  atMs: number,
  now: Moment,
): Moment {
  const at = shiftFromStart(one, atMs) ?? toLocalMs(one, agent, atMs, now.monotonicMs)
  const { monotonicMs, wallSeconds } = toMoment(at, now)
  return { monotonicMs, wallSeconds: Math.max(wallSeconds, one.latestSeconds) }
}

/**
 * Converts an agent's time to local time. The result is between the sending of the job and
 * `latestMs`.
 */
function toLocalMs(
  one: DriverJob,
  agent: RemoteAgent | null,
  atMs: number,
  latestMs: number,
): number {
  if (agent === null) return latestMs
  return Math.min(latestMs, Math.max(one.sinceMs, agent.offset.toLocalMs(atMs)))
}

/**
 * Returns the start plus the time since then by the agent's clock. `null` without a reported start.
 */
function shiftFromStart(one: DriverJob | undefined, atMs: number): number | null {
  if (one === undefined || one.startedMs === null || one.beganMs === null) return null
  return one.startedMs + (atMs - one.beganMs)
}
