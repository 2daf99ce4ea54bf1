/** Judges a run by its record: order, one end for each task, ids, and counters that agree. */

import { endsTask } from '../events/vocabulary.ts'
import type { CheckpointLine, EventLine, MetricLine } from './format.ts'

export interface Verdict {
  readonly tasks: number
  readonly events: number
  /** Tasks without a terminal event; a fault only when the session has ended. */
  readonly unfinished: number
  readonly hasEnded: boolean
  /** What is wrong, in words; at most 100 of them. */
  readonly problems: readonly string[]
  readonly problemCount: number
}

/** The order of a task's events; some may be missing, none may come twice. */
const order = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted']
const counters: Readonly<Record<string, string>> = {
  tasks_submitted: 'TaskSubmitted',
  tasks_started: 'TaskStarted',
  tasks_completed: 'TaskCompleted',
  tasks_failed: 'TaskFailed',
  tasks_canceled: 'TaskCanceled',
}
const mostProblems = 100
const ended = order.length

/** Takes the lines of one checkpoint in order; memory grows with the number of tasks only. */
export class Verifier {
  /** How far each task has come: an index into `order`, or `ended`. */
  readonly #progress = new Map<string, number>()
  readonly #lastTimes = new Map<string, number>()
  readonly #counts = new Map<string, number>()
  readonly #problems: string[] = []
  #problemCount = 0
  #events = 0
  #traceId: string | undefined
  #hasEnded = false
  #lastMetric: MetricLine | undefined

  take(line: CheckpointLine): void {
    if (line.section === 'event') this.#takeEvent(line)
    if (line.section === 'metric') this.#lastMetric = line
  }

  verdict(): Verdict {
    if (this.#events === 0) this.#blame('there is no event: this is not the record of a run')
    const unfinished = [...this.#progress.values()].filter((stage) => stage !== ended).length
    if (this.#hasEnded && unfinished > 0) {
      this.#blame(`${unfinished} tasks have no terminal event although the session has ended`)
    }
    if (this.#hasEnded) this.#compareCounters()
    return {
      tasks: this.#progress.size,
      events: this.#events,
      unfinished,
      hasEnded: this.#hasEnded,
      problems: this.#problems,
      problemCount: this.#problemCount,
    }
  }

  #takeEvent(line: EventLine): void {
    const { event_type: type, task_id: uid } = line
    if (this.#events === 0 && type !== 'SessionStarted') {
      this.#blame(`the first event is ${type}, not SessionStarted`)
    }
    this.#events++
    if (this.#hasEnded) this.#blame(`${type} comes after SessionEnded`)
    this.#traceId ??= line.trace_id
    if (line.trace_id !== this.#traceId) this.#blame(`${type} has another trace_id`)
    if (type === 'SessionEnded') this.#hasEnded = true
    if (uid !== null && (order.includes(type) || endsTask(type))) {
      this.#counts.set(type, (this.#counts.get(type) ?? 0) + 1)
      this.#follow(uid, line)
    }
  }

  #follow(uid: string, line: EventLine): void {
    const { event_type: type, event_time: time } = line
    const stage = this.#progress.get(uid) ?? -1
    const next = endsTask(type) ? ended : order.indexOf(type)
    if (stage === ended) this.#blame(`${uid}: ${type} comes after its end`)
    else if (next <= stage) this.#blame(`${uid}: ${type} comes after ${order[stage]}`)
    this.#progress.set(uid, Math.max(stage, next))
    const last = this.#lastTimes.get(uid)
    if (last !== undefined && time < last)
      this.#blame(`${uid}: ${type} happened before its forerunner`)
    if (next === ended) this.#lastTimes.delete(uid)
    else this.#lastTimes.set(uid, time)
  }

  #compareCounters(): void {
    if (this.#lastMetric === undefined) return this.#blame('there is no metric line')
    for (const [counter, type] of Object.entries(counters)) {
      const counted = this.#lastMetric[counter]
      const seen = this.#counts.get(type) ?? 0
      if (counted !== seen)
        this.#blame(`${counter} is ${String(counted)}, but there are ${seen} ${type}`)
    }
    const running = this.#lastMetric['tasks_running']
    if (running !== 0) this.#blame(`tasks_running is ${String(running)} at the end`)
  }

  #blame(problem: string): void {
    this.#problemCount++
    if (this.#problems.length < mostProblems) this.#problems.push(problem)
  }
}
