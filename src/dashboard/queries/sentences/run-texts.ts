/** The sentences about a run and its critical path, which take long to compute for a large run. */

import { systemClock } from '../../../foundation/clock.ts'
import { tryRead } from '../../../foundation/errors.ts'
import { startSiblingThread } from '../../../runtime/supervised-child.ts'
import type { RunStates } from '../../../views/all-panels.ts'
import { copyNumbers } from '../../../views/columns.ts'
import type { CriticalPath } from '../../../views/bounds/critical-path.ts'
import { counts } from '../../../views/panels/counts.ts'
import { health } from '../../../views/panels/health.ts'
import { countReused } from '../../../views/panels/names.ts'
import { run, runSeconds } from '../../../views/panels/run.ts'
import { createBoundsOverview, describeRun } from '../../../views/texts/run-overview.ts'
import type { RunNow } from '../../../views/texts/task-lines.ts'
import type { RunMoment } from '../run-moment.ts'
import { shownText } from '../shown-texts.ts'
import { smallHeap } from './thread-limits.ts'

export interface RunSummary {
  readonly verdict: string
  /** The sentences: what limited the run, and how it could be shorter. Empty until computed. */
  readonly sentences: readonly string[]
  readonly criticalPath: CriticalPath
}

/** Up to this size of a run, its sentences are computed synchronously. */
const maxTasksAtOnce = 20_000
/** Lets the first panels of a large run appear before its sentences are computed. */
const delayMs = 1000
/**
 * The share of time for computing the sentences about a growing run. They change slowly, because
 * they are about the whole run, but take seconds for a million tasks.
 */
const maxShare = 0.02
const maxSentence = 1000

type Sentences = Omit<RunSummary, 'verdict'>

const noSentences: Sentences = {
  sentences: [],
  criticalPath: { tasks: [], length: 0, seconds: 0, share: 0, delaySeconds: 0 },
}

export class RunTexts {
  readonly #mayPlan: boolean
  #sentences = noSentences
  #key = ''
  #nextMs = -Infinity
  #isPlanned = false
  /** Changes when sentences were computed after an answer was sent without them. */
  revision = 0

  /** `mayPlan: false` disables the thread: the time of a replay changes too often for it. */
  constructor({ mayPlan }: { readonly mayPlan: boolean }) {
    this.#mayPlan = mayPlan
  }

  /**
   * Returns the verdict of this moment, and the latest sentences. While the record is being read,
   * none are computed.
   */
  get(moment: RunMoment, isReading: boolean): RunSummary {
    const { pass, state, isRunning, columns } = moment
    const key = isRunning ? state : `${state} ${pass.counts.events}`
    const isCurrent = key === this.#key && (!isRunning || systemClock.monotonicMs() < this.#nextMs)
    if (!isCurrent && !isReading) {
      if (columns.tasks <= maxTasksAtOnce) this.#compute(moment, key)
      else if (this.#mayPlan) this.#planComputation({ pass, state, now: moment.now }, key)
    }
    return { verdict: describeMoment(moment), ...this.#sentences }
  }

  #compute(moment: RunNow, key: string): void {
    const startMs = systemClock.monotonicMs()
    this.#sentences = computeSentences(moment)
    this.#endComputation(key, startMs)
  }

  #planComputation(moment: RunNow, key: string): void {
    if (this.#isPlanned) return
    this.#isPlanned = true
    systemClock.after(delayMs, () => this.#startThread(moment, key), { background: true })
  }

  /** The thread gets a copy of the pass, because the computation takes seconds. */
  #startThread({ pass, state, now }: RunNow, key: string): void {
    const startMs = systemClock.monotonicMs()
    const known: RunStates = { counts: pass.counts, panels: pass.states }
    const transferList: ArrayBuffer[] = []
    const states = state === 'running' ? copyNumbers(known, transferList) : known
    const data: SentencesData = { states, state, now }
    const options = { name: 'tutti sentences', workerData: data, transferList, ...smallHeap }
    const thread = tryRead(() => startSiblingThread(import.meta.url, 'sentences-program', options))
    // A bundled application does not contain the program. Its large runs have no sentences.
    if (thread === undefined) return
    thread.on('message', (sentences: Sentences) => (this.#sentences = sentences))
    thread.unref()
    // Without an answer, for example for lack of memory, the earlier sentences stay.
    thread.on('error', () => undefined)
    thread.on('exit', () => {
      this.#isPlanned = false
      this.#endComputation(key, startMs)
      this.revision++
    })
  }

  #endComputation(key: string, startMs: number): void {
    const endMs = systemClock.monotonicMs()
    this.#key = key
    this.#nextMs = endMs + (endMs - startMs) / maxShare
  }
}

export interface SentencesData extends Pick<RunNow, 'state' | 'now'> {
  readonly states: RunStates
}

export function computeSentences({ pass, state, now }: RunNow): Sentences {
  const { boundText, bounds } = createBoundsOverview(pass, state, now)
  const texts = [...boundText.sentences, ...boundText.improvements]
  const sentences = texts.map((one) => shownText(one, maxSentence))
  return { sentences, criticalPath: bounds.criticalPath }
}

function describeMoment({ pass, state, now }: RunMoment): string {
  const { states } = pass
  const numbers = {
    counts: counts.show(pass.counts),
    run: run.show(states.run),
    health: health.show(states.health),
    state,
    durationSeconds: runSeconds(states.run, states.bounds.attended, now),
    reused: countReused(states.names),
  }
  return shownText(describeRun(numbers).sentence, maxSentence)
}
