/** The names of subjects and streams. Ids are hashed, because they may contain any character. */

import { createHash, randomUUID } from 'node:crypto'

/**
 * Increased by each release whose messages the previous release would misread. Stays 1 until the
 * first release. The permissions of a broker contain it (docs/cluster.md).
 */
export const protocolVersion = 1

const prefix = `tutti${protocolVersion}`

/** Converts an id to a name that is valid in subjects, streams and folders. */
export const toToken = (id: string): string =>
  createHash('sha256').update(id).digest('hex').slice(0, 24)

/** The same in every protocol version, so that agents of another version are detected. */
export const announcementSubject = 'tutti.agents'
/** The subject of requests to all agents to announce themselves. */
export const discoverySubject = 'tutti.discover'
/** The subject of watchers' reports about agents that do not answer. */
export const watcherSubject = 'tutti.watchers'
/** The subject on which an agent's watcher answers for as long as the agent's process is alive. */
export const watcherPingSubject = (agent: string): string => `${prefix}.watcher.${toToken(agent)}`
export const agentSubject = (name: string): string => `${prefix}.agent.${toToken(name)}`

/** One backend of a session. Each has its own subjects and keys, even on the same server. */
export interface SessionUse {
  readonly sessionId: string
  readonly backend: string
}

/**
 * A backend of a session, from the creation of its stream until the stream is removed or lost. A
 * run spans successive starts of the driver.
 */
export interface SessionRun extends SessionUse {
  readonly run: string
}

export const newRunId = (): string => randomUUID()

/** Returns an id of a session's backend. Session ids contain no slash, so the id is unambiguous. */
export const toSessionUseId = ({ sessionId, backend }: SessionUse): string =>
  `${sessionId}/${backend}`

export interface SessionSubjects {
  readonly heartbeat: string
  readonly toAgent: (agent: string) => string
  /** An agent's reports to the driver, which are not stored. */
  readonly fromAgent: (agent: string) => string
  readonly fromAllAgents: string
  /** An agent's results of attempts, which are stored in the stream. */
  readonly agentResults: (agent: string) => string
  readonly allResults: string
  /** The claims of drivers to own the session, which are stored in order. */
  readonly claim: string
  /** Where the driver answers ownership requests, by which a second driver detects the first. */
  readonly owner: string
  /** Like `owner`, for the drivers of all backends of the session, which share a process. */
  readonly sessionOwner: string
  readonly objects: string
  readonly stream: string
  readonly stored: readonly string[]
}

export const streamPrefix = `${prefix}-`

/** The subject on which the driver that owns the stream answers. */
export const toOwnerSubject = (stream: string): string =>
  `${prefix}.session.${stream.slice(streamPrefix.length)}.owner`

export function sessionSubjects(use: SessionUse): SessionSubjects {
  const token = toToken(toSessionUseId(use))
  const base = `${prefix}.session.${token}`
  const [allResults, objects] = [`${base}.ends.*`, `${base}.objects`]
  const claim = `${base}.claim`
  return {
    heartbeat: `${base}.beat`,
    toAgent: (agent) => `${base}.down.${toToken(agent)}`,
    fromAgent: (agent) => `${base}.up.${toToken(agent)}`,
    fromAllAgents: `${base}.up.*`,
    agentResults: (agent) => `${base}.ends.${toToken(agent)}`,
    allResults,
    claim,
    owner: `${base}.owner`,
    // Session ids contain no slash, so this token differs from that of every backend.
    sessionOwner: `${prefix}.session.${toToken(use.sessionId)}.owner`,
    objects,
    stream: streamPrefix + token,
    stored: [allResults, claim, `${objects}.>`],
  }
}
