/** Converts times of an agent to times of this machine, so that nothing precedes its cause. */

import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AgentLink, DriverJob } from '../agent-link.ts'
import { type EventSource, toMoment } from '../directory/clock-offset.ts'

/**
 * Converts the start of an attempt that had not ended at `atMs`. Both times are by the agent's
 * clock.
 */
export function toStart(
  one: DriverJob,
  agent: AgentLink | null,
  { beganMs, atMs }: { readonly beganMs: number; readonly atMs: number },
  now: Moment,
): Moment {
  const at = toMoment(toHere(one, agent, beganMs, now.monotonicMs - atMs + beganMs), now)
  one.startedMs = at.monotonicMs
  one.beganMs = beganMs
  one.latestSeconds = Math.max(one.latestSeconds, at.wallSeconds)
  return at
}

/**
 * The time of an event of a task's code or the node's backend: not before the task's start, nor
 * before its earlier events, whose times were converted with other readings of the clocks.
 */
export function toEventSeconds(
  one: DriverJob | undefined,
  agent: EventSource['agent'],
  atMs: number,
  now: Moment,
): number {
  const hereMs = sinceStart(one, atMs) ?? agent?.offset.toHere(atMs) ?? now.monotonicMs
  if (one === undefined) return toMoment(hereMs, now).wallSeconds
  // A continued task may have begun before this start of the driver has submitted it.
  const { wallSeconds } = toMoment(Math.max(hereMs, one.addedMs), now)
  one.latestSeconds = Math.max(one.latestSeconds, wallSeconds)
  return one.latestSeconds
}

/** The end time of an attempt, from the agent's clock. Not before any reported event of it. */
export function toEnd(one: DriverJob, agent: AgentLink | null, atMs: number, now: Moment): Moment {
  const at = sinceStart(one, atMs) ?? toHere(one, agent, atMs, now.monotonicMs)
  const { monotonicMs, wallSeconds } = toMoment(at, now)
  return { monotonicMs, wallSeconds: Math.max(wallSeconds, one.latestSeconds) }
}

/**
 * Limits the time to between the sending of the job and `latestMs`, because clocks may be wrong.
 * Returns `latestMs` without an agent, whose clock is unknown.
 */
function toHere(one: DriverJob, agent: AgentLink | null, atMs: number, latestMs: number): number {
  if (agent === null) return latestMs
  return Math.min(latestMs, Math.max(one.sinceMs, agent.agent.offset.toHere(atMs)))
}

/**
 * Converts a time during an attempt by its distance from the start, because the estimated clock
 * offset may have changed, and durations are as the agent measured them. `null` if the attempt has
 * not started.
 */
function sinceStart(one: DriverJob | undefined, atMs: number): number | null {
  if (one === undefined || one.startedMs === null || one.beganMs === null) return null
  return one.startedMs + (atMs - one.beganMs)
}
