/** Converts times of an agent to times of this machine, so that nothing precedes its cause. */

import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AgentLink, DriverJob } from '../agent-link.ts'
import { type EventSource, toMoment } from '../directory/clock-offset.ts'

/** The start of an attempt, which had not ended at `atMs`; both times are by the agent's clock. */
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

/** The end of an attempt, from the agent's clock: not before anything that was reported of it. */
export function toEnd(one: DriverJob, agent: AgentLink | null, atMs: number, now: Moment): Moment {
  const at = sinceStart(one, atMs) ?? toHere(one, agent, atMs, now.monotonicMs)
  const { monotonicMs, wallSeconds } = toMoment(at, now)
  return { monotonicMs, wallSeconds: Math.max(wallSeconds, one.latestSeconds) }
}

/**
 * Not before the job was sent, and not after `latestMs`: what followed is already over, whatever
 * the clocks say. Without an agent, whose clock is gone with it, `latestMs`.
 */
function toHere(one: DriverJob, agent: AgentLink | null, atMs: number, latestMs: number): number {
  if (agent === null) return latestMs
  return Math.min(latestMs, Math.max(one.sinceMs, agent.agent.offset.toHere(atMs)))
}

/**
 * Converts a time during an attempt by its distance from the start: the estimated clock offset may
 * have changed since, and an attempt lasts as long as the agent has measured. `null` if it has not
 * started.
 */
function sinceStart(one: DriverJob | undefined, atMs: number): number | null {
  if (one === undefined || one.startedMs === null || one.beganMs === null) return null
  return one.startedMs + (atMs - one.beganMs)
}
