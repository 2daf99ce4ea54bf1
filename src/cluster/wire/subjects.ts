/** The names of subjects and streams. Ids may contain any character, so they are hashed. */

import { createHash, randomUUID } from 'node:crypto'

/**
 * Increases with each release whose messages the previous release would misread. It stays 1 until
 * the first release, because agents and drivers of one checkout always match. Permissions of a
 * broker name it (docs/cluster.md).
 */
export const protocolVersion = 1

const prefix = `tutti${protocolVersion}`

/** Converts an id to a name that is valid in subjects, streams and folders. */
export const toToken = (id: string): string =>
  createHash('sha256').update(id).digest('hex').slice(0, 24)

/** Announcements of agents. Equal in all versions, so that other versions are noticed. */
export const announcementSubject = 'tutti.agents'
/** Asks all agents to announce themselves. */
export const discoverySubject = 'tutti.discover'
/** Reports of watchers about agents that cannot report themselves. */
export const watcherSubject = 'tutti.watchers'
/** Answered by an agent's watcher for as long as the agent's process is alive. */
export const watcherOf = (agent: string): string => `${prefix}.watcher.${toToken(agent)}`
/** Requests to one agent. */
export const agentSubject = (name: string): string => `${prefix}.agent.${toToken(name)}`

/** One backend of a session. Two uses on one server have different subjects and keys. */
export interface SessionUse {
  readonly sessionId: string
  readonly backend: string
}

/**
 * A use from the creation of its stream until the stream is removed or lost. It spans successive
 * starts of the driver, but ends with the session.
 */
export interface SessionRun extends SessionUse {
  readonly run: string
}

export const newRun = (): string => randomUUID()

/** Identifies a use. Session ids contain no slash, so the result is unambiguous. */
export const toUseId = ({ sessionId, backend }: SessionUse): string => `${sessionId}/${backend}`

/** The subjects and the stream of one use. */
export interface SessionSubjects {
  /** From the driver to all of its agents: heartbeats. */
  readonly beat: string
  /** From the driver to one agent: jobs and messages about them. */
  readonly downTo: (agent: string) => string
  /** From an agent to the driver: reports that are not stored. */
  readonly upFrom: (agent: string) => string
  readonly allUp: string
  /** From an agent to the driver: results of attempts, stored in the stream. */
  readonly endsOf: (agent: string) => string
  readonly allEnds: string
  /** From the driver to the stream: notes of used agents, so that a later start finds them. */
  readonly used: string
  /** From each driver of the session to the stream: its claim to be the owner, in order. */
  readonly claim: string
  /** Answered by the driver, so that a second driver of the use detects the first. */
  readonly owner: string
  /** Answered by the drivers of all uses of the session, all of which belong to one process. */
  readonly sessionOwner: string
  /** The prefix of the subjects of stored objects. */
  readonly objects: string
  readonly stream: string
  /** All subjects that the stream stores. */
  readonly stored: readonly string[]
}

/** The prefix of the names of all session streams. */
export const streamPrefix = `${prefix}-`

/** The subject on which the driver of a stream's session answers. */
export const ownerOfStream = (stream: string): string =>
  `${prefix}.session.${stream.slice(streamPrefix.length)}.owner`

export function sessionSubjects(use: SessionUse): SessionSubjects {
  const token = toToken(toUseId(use))
  const base = `${prefix}.session.${token}`
  const [allEnds, used, objects] = [`${base}.ends.*`, `${base}.used`, `${base}.objects`]
  const claim = `${base}.claim`
  return {
    beat: `${base}.beat`,
    downTo: (agent) => `${base}.down.${toToken(agent)}`,
    upFrom: (agent) => `${base}.up.${toToken(agent)}`,
    allUp: `${base}.up.*`,
    endsOf: (agent) => `${base}.ends.${toToken(agent)}`,
    allEnds,
    used,
    claim,
    owner: `${base}.owner`,
    // Session ids contain no slash, so this token differs from that of every use.
    sessionOwner: `${prefix}.session.${toToken(use.sessionId)}.owner`,
    objects,
    stream: streamPrefix + token,
    stored: [allEnds, used, claim, `${objects}.>`],
  }
}
