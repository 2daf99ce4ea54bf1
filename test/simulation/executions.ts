/** What really ran in a simulation, and whether it was allowed to. */

/** One task of a simulation. */
export interface TaskPlan {
  readonly uid: string
  readonly durationMs: number
  /** How many executions throw before one completes. */
  readonly failures: number
  readonly retries: number
  readonly priority: number
  /** The size of the value. Large values travel as objects of the store. */
  readonly valueBytes: number
  /** The size of the arguments. Large ones travel as objects of the store. */
  readonly inputBytes: number
}

type ExecutionState = 'running' | 'completed' | 'thrown' | 'canceled' | 'killed'

export interface Execution {
  readonly plan: TaskPlan
  readonly attempt: number
  readonly agent: string
  readonly number: number
  state: ExecutionState
}

interface TaskExecutions {
  readonly plan: TaskPlan
  readonly executions: Execution[]
  /** How often the session was told that an attempt has failed or moved, or was canceled. */
  reports: number
}

/**
 * A task may begin once, and once more for each report that an attempt has failed, was lost or has
 * moved. The report may come before the attempt begins: a silent agent begins what has moved.
 */
export class Executions {
  readonly #byUid: ReadonlyMap<string, TaskExecutions>
  readonly #onViolation: (text: string) => void
  #number = 0

  constructor(plans: readonly TaskPlan[], onViolation: (text: string) => void) {
    this.#byUid = new Map(plans.map((plan) => [plan.uid, { plan, executions: [], reports: 0 }]))
    this.#onViolation = onViolation
  }

  get running(): number {
    const all = [...this.#byUid.values()].flatMap(({ executions }) => executions)
    return all.filter(({ state }) => state === 'running').length
  }

  begin(uid: string, attempt: number, agent: string): Execution {
    const task = this.#of(uid)
    const { plan, executions, reports } = task
    if (executions.length > reports) {
      const known = executions.map((one) => `${one.attempt} on ${one.agent} (${one.state})`)
      const text = `${uid}: attempt ${attempt} begins on ${agent} after ${known.join(', ')}`
      this.#onViolation(`${text}, with ${reports} reports of failures or moves`)
    }
    const execution: Execution = { plan, attempt, agent, number: ++this.#number, state: 'running' }
    executions.push(execution)
    return execution
  }

  /** The first executions of a task throw, as its plan says. */
  end(execution: Execution): 'completed' | 'thrown' {
    const { plan } = execution
    const thrown = this.#of(plan.uid).executions.filter(({ state }) => state === 'thrown')
    execution.state = thrown.length < plan.failures ? 'thrown' : 'completed'
    return execution.state
  }

  /** The agent has ended the execution on request, because the task or its driver is gone. */
  cancel(execution: Execution): void {
    execution.state = 'canceled'
    this.addReport(execution.plan.uid)
  }

  kill(execution: Execution): void {
    if (execution.state === 'running') execution.state = 'killed'
  }

  /** The session was told that an attempt has failed, was lost or has moved. */
  addReport(uid: string): void {
    this.#of(uid).reports++
  }

  /** Nobody can know what ran before: everything that knew it was lost together. */
  forget(isAffected: (plan: TaskPlan) => boolean = () => true): void {
    for (const task of this.#byUid.values()) {
      if (isAffected(task.plan)) task.reports = Math.max(task.reports, task.executions.length)
    }
  }

  hasCompleted(uid: string, number: number): boolean {
    const { executions } = this.#of(uid)
    return executions.some((one) => one.number === number && one.state === 'completed')
  }

  #of(uid: string): TaskExecutions {
    const found = this.#byUid.get(uid)
    if (found === undefined) throw new Error(`task ${uid} is unknown`)
    return found
  }
}
