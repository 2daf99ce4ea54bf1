/** Which run of each session an agent serves, and which drivers it refuses. */

import type { Attach, Attached, Message } from '../../wire/messages.ts'
import { type SessionUse, toSessionUseId } from '../../wire/subjects.ts'

interface KnownRun {
  readonly run: string
  /** The latest start of a driver of the run. Earlier ones are refused. */
  readonly latestStart: number
  /** Whether the agent has a part in the run. */
  readonly isOpen: boolean
  /** Whether a driver has closed the run. */
  readonly isClosed: boolean
}

/** The agent's part in a session. */
interface Part {
  readonly run: string
  readonly isEnding: boolean
}

/**
 * What is done with a driver that attaches. `continue`: it gets the part that the agent has.
 * `begin`: the agent begins a part. `wait`: the part is ending, so that this is asked again when it
 * has ended. `drop`: the same, but nobody needs its results. `replace`: the part belongs to an
 * earlier run, so it ends first.
 */
export type Admission =
  | { readonly kind: 'continue' | 'begin' | 'wait' | 'drop' | 'replace' }
  | { readonly kind: 'refuse'; readonly answer: Attached }

const maxForgettableRuns = 1000

export class AgentRuns {
  readonly #agent: string
  readonly #known = new Map<string, KnownRun>()

  constructor(agent: string) {
    this.#agent = agent
  }

  /** What a driver must know before it attaches. */
  describe(use: SessionUse | undefined): Pick<Message<'challenged'>, 'run' | 'latestStart'> {
    const known = use === undefined ? undefined : this.#known.get(toSessionUseId(use))
    // A run that was closed is never continued: its messages must stay invalid.
    const run = known === undefined || known.isClosed ? null : known.run
    return { run, latestStart: known?.latestStart ?? 0 }
  }

  admit(attach: Attach, part: Part | undefined, isDraining: boolean): Admission {
    const { sessionId, run, driverStart } = attach
    const known = this.#known.get(toSessionUseId(attach))
    if (known !== undefined) {
      const { latestStart, isClosed } = known
      const isEarlier = driverStart < latestStart
      if (isEarlier || (driverStart === latestStart && run !== known.run)) {
        const later = `a later start of session "${sessionId}"`
        const isGone = isClosed && run === known.run
        const why = isGone ? 'has closed it' : `uses agent "${this.#agent}"`
        return refuse('SessionInUseError', `${later} ${why}`)
      }
    }
    if (part?.isEnding === true) return { kind: part.run === run ? 'wait' : 'drop' }
    if (part !== undefined && part.run !== run) return { kind: 'replace' }
    // A draining agent that holds jobs of the session still accepts its returning driver.
    if (part === undefined && isDraining) {
      return refuse('AgentDrainingError', `agent "${this.#agent}" is leaving`)
    }
    this.#remember(attach, { run, latestStart: driverStart, isOpen: true, isClosed: false })
    return { kind: part === undefined ? 'begin' : 'continue' }
  }

  /** `superseded`: a later start of the driver uses the agent. `ends`: the part must end now. */
  detach(detach: Message<'detach'>, part: Part | undefined): 'superseded' | 'ends' | 'nothing' {
    // Copies of detach messages from runs that were closed before have no effect.
    if (part === undefined || part.run !== detach.run) return 'nothing'
    const known = this.#known.get(toSessionUseId(detach))
    if (known === undefined || known.latestStart > detach.driverStart) return 'superseded'
    this.#remember(detach, { ...known, latestStart: detach.driverStart, isClosed: true })
    return 'ends'
  }

  /** Called when the agent's part in a session has ended. */
  close(use: SessionUse): void {
    const known = this.#known.get(toSessionUseId(use))
    if (known !== undefined) this.#remember(use, { ...known, isOpen: false })
  }

  #remember(use: SessionUse, known: KnownRun): void {
    const id = toSessionUseId(use)
    this.#known.delete(id)
    this.#known.set(id, known)
    if (this.#known.size <= maxForgettableRuns) return
    const oldest = [...this.#known].find(([, { isOpen }]) => !isOpen)
    if (oldest !== undefined) this.#known.delete(oldest[0])
  }
}

const refuse = (code: string, message: string): Admission => ({
  kind: 'refuse',
  answer: { kind: 'refused', code, message },
})
