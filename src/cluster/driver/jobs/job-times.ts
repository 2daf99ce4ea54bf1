/** When things happened at an agent, as times of this machine. Nothing comes before its cause. */

import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AgentLink, DriverJob } from '../agent-link.ts'
import { type EventSource, toMoment } from '../directory/clock-offset.ts'

/** The start of an attempt, and the time by which it had not ended; times of the agent's clock. */
export function toStart(
  one: DriverJob,
  agent: AgentLink | null,
  { beganMs, atMs }: { readonly beganMs: number; readonly atMs: number },
  now: Moment,
): Moment {
  const at = toMoment(toHere(one, agent, beganMs, now.monotonicMs - atMs + beganMs), now)
  one.startedMs = at.monotonicMs
  one.beganMs = beganMs
  one.toldSeconds = Math.max(one.toldSeconds, at.wallSeconds)
  return at
}

/**
 * An event of a task's code, or of the node's backend: not before the start of the task, nor before
 * its earlier events, which other readings of the clocks have placed.
 */
export function toEventSeconds(
  one: DriverJob | undefined,
  agent: EventSource['agent'],
  atMs: number,
  now: Moment,
): number {
  const hereMs = sinceStart(one, atMs) ?? agent?.offset.toHere(atMs) ?? now.monotonicMs
  if (one === undefined) return toMoment(hereMs, now).wallSeconds
  // A task that goes on was begun before this start of the driver has submitted it.
  const { wallSeconds } = toMoment(Math.max(hereMs, one.addedMs), now)
  one.toldSeconds = Math.max(one.toldSeconds, wallSeconds)
  return one.toldSeconds
}

/** The end of an attempt, at a time of the agent's clock: not before what was told of it. */
export function toEnd(one: DriverJob, agent: AgentLink | null, atMs: number, now: Moment): Moment {
  const at = sinceStart(one, atMs) ?? toHere(one, agent, atMs, now.monotonicMs)
  const { monotonicMs, wallSeconds } = toMoment(at, now)
  return { monotonicMs, wallSeconds: Math.max(wallSeconds, one.toldSeconds) }
}

/**
 * Not before the job was sent and not after `latestMs`, by which what follows it is over now,
 * whatever the clocks say. Without an agent, which is gone with its clock, it is the latest.
 */
function toHere(one: DriverJob, agent: AgentLink | null, atMs: number, latestMs: number): number {
  if (agent === null) return latestMs
  return Math.min(latestMs, Math.max(one.sinceMs, agent.agent.offset.toHere(atMs)))
}

/**
 * A time of the agent's clock during an attempt, by how long after the start it was: the estimate
 * of that clock's offset may have changed since, and an attempt lasts as long as the agent has
 * measured. `null` if it has not started.
 */
function sinceStart(one: DriverJob | undefined, atMs: number): number | null {
  if (one === undefined || one.startedMs === null || one.beganMs === null) return null
  return one.startedMs + (atMs - one.beganMs)
}
