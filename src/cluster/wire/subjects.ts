/** The names of subjects and streams. Ids may hold any character, so that they are hashed. */

import { createHash, randomUUID } from 'node:crypto'

/**
 * Changes with every release whose messages an agent or driver of the one before would misread. It
 * is 1 until the first release: agents and drivers of one checkout are always of the same state.
 * Permissions of a broker name it (docs/cluster.md).
 */
export const protocolVersion = 1

const prefix = `tutti${protocolVersion}`

/** A name that may be part of a subject, of a stream and of a folder. */
export const toToken = (id: string): string =>
  createHash('sha256').update(id).digest('hex').slice(0, 24)

/** Announcements of agents, for everybody: the same in all versions, so that others are seen. */
export const announcementSubject = 'tutti.agents'
/** Asks all agents to announce themselves. */
export const discoverySubject = 'tutti.discover'
/** What watchers of agents tell that cannot speak for themselves. */
export const watcherSubject = 'tutti.watchers'
/** Answered by the watcher of an agent for as long as the agent's process is there. */
export const watcherOf = (agent: string): string => `${prefix}.watcher.${toToken(agent)}`
/** What is sent to one agent. */
export const agentSubject = (name: string): string => `${prefix}.agent.${toToken(name)}`

/** One backend of a session: two of them on one server share no subjects and no keys. */
export interface SessionUse {
  readonly sessionId: string
  /** The backend's name. */
  readonly backend: string
}

/**
 * A use from the moment in which its stream is created until that is removed, or lost: through all
 * starts of its driver that follow each other, and not beyond the end of the session.
 */
export interface SessionRun extends SessionUse {
  readonly run: string
}

export const newRun = (): string => randomUUID()

/** Names a use: ids of sessions have no slash. */
export const toUseId = ({ sessionId, backend }: SessionUse): string => `${sessionId}/${backend}`

/** The subjects of one use, and its stream. */
export interface SessionSubjects {
  /** From the driver to all of its agents: it is alive. */
  readonly beat: string
  /** From the driver to one agent: jobs and what becomes of them. */
  readonly downTo: (agent: string) => string
  /** From agents to the driver: what need not be kept. */
  readonly upFrom: (agent: string) => string
  readonly allUp: string
  /** From agents to the driver: ends of jobs, kept by the stream. */
  readonly endsOf: (agent: string) => string
  readonly allEnds: string
  /** From the driver to the stream: this agent is used, so that a later start looks for it. */
  readonly used: string
  /** From each driver that has the session to the stream: one after the other. */
  readonly claim: string
  /** Answered by the driver, so that a second one learns of the first. */
  readonly owner: string
  /** Answered by the drivers of all uses of the session: they belong to one process. */
  readonly sessionOwner: string
  /** What the subjects of stored objects begin with. */
  readonly objects: string
  readonly stream: string
  /** All that the stream keeps. */
  readonly stored: readonly string[]
}

/** What the names of all streams of sessions begin with. */
export const streamPrefix = `${prefix}-`

/** The subject that the driver of a stream's session answers. */
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
    // Ids of sessions have no slash, so that it is the token of no use.
    sessionOwner: `${prefix}.session.${toToken(use.sessionId)}.owner`,
    objects,
    stream: streamPrefix + token,
    stored: [allEnds, used, claim, `${objects}.>`],
  }
}
