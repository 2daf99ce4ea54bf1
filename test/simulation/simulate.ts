/** One simulation: a driver, agents and a server in virtual time, with the faults of a seed. */

import { createHash } from 'node:crypto'
import type { Log } from '../../src/foundation/log.ts'
import { Executions, type TaskPlan } from './executions.ts'
import { drawFaults, type Fault } from './faults.ts'
import { MachineAgent } from './machines/machine-agent.ts'
import { MachineDriver } from './machines/machine-driver.ts'
import { seedCrypto } from './seeded-crypto.ts'
import { SeededRandom } from './seeded-random.ts'
import { SimulatedAgent } from './simulated-agent.ts'
import type { SimulatedConnection } from './simulated-connection.ts'
import { SimulatedDriver } from './simulated-driver.ts'
import { SimulatedNats } from './simulated-nats.ts'
import { SimulatedRecord } from './simulated-record.ts'
import { type SimulatedProcess, VirtualTime } from './virtual-time.ts'

/**
 * `machines`: the state machines of driver and agents, without their shells. `processes`: with
 * their shells, which sign and encode messages.
 */
export type SimulatedParts = 'machines' | 'processes'

export interface SimulationOptions {
  readonly seed: number
  /** Default `machines`. */
  readonly parts?: SimulatedParts
  /** Replaces the faults of the seed. */
  readonly faults?: readonly Fault[]
  readonly onTrace?: (line: string) => void
}

export interface SimulationResult {
  readonly seed: number
  readonly faults: readonly Fault[]
  readonly violations: readonly string[]
  /** A digest of everything that happened. */
  readonly hash: string
}

interface Scenario {
  readonly cores: readonly number[]
  readonly plans: readonly TaskPlan[]
  readonly times: {
    readonly agentTimeoutSeconds: number
    readonly lossSeconds: number
    readonly ownerTtlSeconds: number
  }
  readonly submitMs: number
  readonly faults: readonly Fault[]
}

const token = 'a token of the simulation'
const tasks = 50
const faultsUntilMs = 8000
const backupMs = 1500
const startRetryMs = 200
/** Larger values travel as objects of the store. */
const maxPayload = 16_384
const largeValueBytes = 20_000
/** A store and a driver that are lost within this time may lose together what only they knew. */
const forgettableMs = 5000
const maxViolations = 5

export async function simulate(options: SimulationOptions): Promise<SimulationResult> {
  const simulation = new Simulation(options)
  await simulation.run()
  return simulation.result
}

class Simulation {
  readonly #seed: number
  readonly #time = new VirtualTime()
  readonly #random: SeededRandom
  readonly #scenario: Scenario
  readonly #server = new SimulatedNats()
  readonly #record = new SimulatedRecord()
  readonly #executions: Executions
  readonly #agents: readonly (SimulatedAgent | MachineAgent)[]
  readonly #hasShells: boolean
  readonly #violations: string[] = []
  readonly #hash = createHash('sha256')
  readonly #onTrace: ((line: string) => void) | undefined
  #driver: SimulatedDriver | MachineDriver | null = null
  /** When the driver was last started again. */
  #returnedMs = -Infinity
  /** When the driver last died, plus the time for which the server was down since then. */
  #driverDiedMs = -Infinity
  /** When the server last lost its store, plus the time for which it was down since then. */
  #storeLostMs = -Infinity
  /** Faults that have begun and not ended, such as a stopped agent. */
  #ongoing = 0
  #outages = 0
  #isStoreLost = false
  #mayLeaveStream = false
  /** Whether a returning driver may not find the results that the last one had. */
  #isForgetful = false

  constructor({ seed, faults, onTrace, parts = 'machines' }: SimulationOptions) {
    this.#hasShells = parts === 'processes'
    if (this.#hasShells) seedCrypto(seed)
    this.#seed = seed
    this.#random = new SeededRandom(seed)
    this.#onTrace = onTrace
    const scenario = drawScenario(this.#random.fork(), new SeededRandom(-seed))
    this.#scenario = faults === undefined ? scenario : { ...scenario, faults }
    this.#executions = new Executions(this.#scenario.plans, this.#violate)
    this.#agents = this.#scenario.cores.map((cores, at) => this.#createAgent(`node-${at}`, cores))
  }

  get result(): SimulationResult {
    const hash = this.#hash.copy().digest('hex')
    return {
      seed: this.#seed,
      faults: this.#scenario.faults,
      violations: this.#violations.slice(0, maxViolations),
      hash,
    }
  }

  async run(): Promise<void> {
    const { faults, times } = this.#scenario
    for (const agent of this.#agents) {
      this.#time.after(this.#random.between(0, 300), () => agent.start())
    }
    this.#time.after(this.#random.between(0, 300), () => this.#startDriver())
    this.#time.after(backupMs, () => this.#server.backUp())
    for (const fault of faults) this.#time.at(fault.atMs, () => this.#inject(fault))
    const isBroken = (): boolean => this.#violations.length > 0
    await this.#runUntil(this.#limitMs, () => this.#isFinished || isBroken())
    if (isBroken()) return
    if (!this.#isFinished) {
      const open = this.#driver?.openTasks ?? []
      this.#violate(`it has not ended; open tasks: ${open.join(' ')}`)
      return
    }
    const settledMs = this.#time.nowMs + (times.ownerTtlSeconds + 2 * times.lossSeconds + 30) * 1000
    await this.#runUntil(settledMs, isBroken)
    this.#checkLeftovers()
  }

  async #runUntil(untilMs: number, isOver: () => boolean): Promise<void> {
    if (this.#hasShells) await this.#time.run(untilMs, isOver)
    else this.#time.runSync(untilMs, isOver)
  }

  readonly #violate = (text: string): void => {
    this.#trace(`violation: ${text}`)
    this.#violations.push(text)
  }

  readonly #trace = (text: string): void => {
    const line = `${this.#time.nowMs.toFixed(3)} ${text}`
    this.#hash.update(`${line}\n`)
    this.#onTrace?.(line)
  }

  get #isFinished(): boolean {
    const isQuiet = this.#ongoing === 0 && this.#time.nowMs >= this.#faultsEndMs
    return isQuiet && this.#driver?.isFinished === true
  }

  get #faultsEndMs(): number {
    return this.#scenario.faults.at(-1)?.atMs ?? 0
  }

  /** When everything must have ended. */
  get #limitMs(): number {
    const { plans, cores, times, faults } = this.#scenario
    const workMs = plans.reduce((sum, one) => sum + one.durationMs * (one.failures + 1), 0)
    const lastMs = faults.reduce(
      (last, fault) => Math.max(last, fault.atMs + ('ms' in fault ? fault.ms : 0)),
      0,
    )
    const { ownerTtlSeconds, agentTimeoutSeconds, lossSeconds } = times
    const waitMs = (ownerTtlSeconds + agentTimeoutSeconds + 3 * lossSeconds + 60) * 1000
    return lastMs + (3 * workMs) / Math.min(...cores) + waitMs
  }

  #checkLeftovers(): void {
    const streams = this.#server.streamNames
    if (streams.length > 0 && !this.#mayLeaveStream)
      this.#violate(`streams are left: ${streams.join(' ')}`)
    for (const { name, openSessions } of this.#agents) {
      if (openSessions > 0) this.#violate(`${name} still has ${openSessions} sessions`)
    }
    if (this.#executions.running > 0) this.#violate('tasks are still running')
    if (this.#record.lostLines > 0) return
    for (const { uid } of this.#scenario.plans) this.#checkEnd(uid)
  }

  #checkEnd(uid: string): void {
    const { faults, plans } = this.#scenario
    const { end, failures } = this.#record.of(uid)
    if (end === null) this.#violate(`${uid} has no end in the record`)
    const isCanceled = faults.some(
      (fault) => fault.kind === 'cancel' && fault.tasks.some((at) => plans[at]?.uid === uid),
    )
    if (end === 'canceled' && !isCanceled) this.#violate(`${uid} ends canceled, but nobody asked`)
    if (faults.length > 0) return
    const plan = plans.find((one) => one.uid === uid)
    if (plan === undefined) return
    const wanted = plan.failures > plan.retries ? 'failed' : 'done'
    if (end !== wanted) this.#violate(`${uid} ends ${end} instead of ${wanted}`)
    const expected = Math.min(plan.failures, plan.retries + 1)
    if (failures.size !== expected) this.#violate(`${uid} has failed ${failures.size} times`)
  }

  #createAgent(name: string, cores: number): SimulatedAgent | MachineAgent {
    const options = { name, cores, ...this.#common, executions: this.#executions }
    return this.#hasShells ? new SimulatedAgent(options) : new MachineAgent(options)
  }

  get #common() {
    return {
      token,
      maxPayload,
      time: this.#time,
      server: this.#server,
      random: this.#random.fork(),
      log: this.#createLog(),
      trace: this.#trace,
    }
  }

  #createLog(): Log {
    const write = (code: string, text: string): void => {
      // A driver without a connection gives up closing its session, and says so.
      if (code === 'SessionNotRemoved' || code === 'StreamNotRemoved') this.#mayLeaveStream = true
      this.#trace(`${code}: ${text}`)
    }
    return { warn: write, info: write } as unknown as Log
  }

  #startDriver(): void {
    if (!this.#server.isUp) {
      this.#time.after(startRetryMs, () => this.#startDriver())
      return
    }
    this.#trace('the driver starts')
    if (this.#record.isStarted) this.#returnedMs = this.#time.nowMs
    if (this.#isForgetful) this.#executions.forget()
    const { plans, times, submitMs } = this.#scenario
    const Kind = this.#hasShells ? SimulatedDriver : MachineDriver
    this.#driver = new Kind({
      ...this.#common,
      ...times,
      plans,
      submitMs,
      record: this.#record,
      executions: this.#executions,
      onViolation: this.#violate,
      // An agent that gives up the session during long outages stores nothing a second time.
      mayLoseValues: () => this.#isStoreLost && this.#outages > 1,
    })
  }

  #linkOf(agent: number | null): SimulatedConnection | null {
    return agent === null ? (this.#driver?.connection ?? null) : this.#agentAt(agent).connection
  }

  #agentAt(index: number): SimulatedAgent | MachineAgent {
    const agent = this.#agents[index % this.#agents.length]
    if (agent === undefined) throw new Error('there is no agent')
    return agent
  }

  #inject(fault: Fault): void {
    this.#trace(`fault: ${JSON.stringify(fault)}`)
    if (fault.kind === 'break link') this.#linkOf(fault.agent)?.break()
    else if (fault.kind === 'lose messages') this.#linkOf(fault.agent)?.loseMessages(fault.ms)
    else if (fault.kind === 'repeat messages') this.#linkOf(fault.agent)?.repeatMessages(fault.ms)
    else if (fault.kind === 'stall link') {
      this.#linkOf(fault.agent)?.stall(fault.direction, fault.ms)
    } else if (fault.kind === 'restart server') this.#restartServer(fault)
    else if (fault.kind === 'fill store') {
      this.#server.capacityBytes = this.#server.heldBytes
      // A returned driver confirms what it found before it has recorded it, and agents make room.
      this.#isForgetful = true
      this.#endLater(fault.ms, () => (this.#server.capacityBytes = Infinity))
    } else if (fault.kind === 'fill disk of record') {
      this.#record.isDiskFull = true
      this.#endLater(fault.ms, () => (this.#record.isDiskFull = false))
    } else if (fault.kind === 'kill driver') this.#killDriver(fault.ms)
    else if (fault.kind === 'stop driver') this.#suspend(this.#driver?.process, fault.ms)
    else if (fault.kind === 'set clock') {
      const { agent, seconds } = fault
      const process = agent === null ? this.#driver?.process : this.#agentAt(agent).process
      process?.setWallClock(seconds)
    } else if (fault.kind === 'cancel') {
      for (const at of fault.tasks) this.#driver?.cancel(this.#scenario.plans[at]?.uid ?? '')
    } else this.#injectIntoAgent(fault)
  }

  #injectIntoAgent(
    fault: Extract<Fault, { readonly kind: 'kill agent' | 'stop agent' | 'drain agent' }>,
  ): void {
    const agent = this.#agentAt(fault.agent)
    if (fault.kind === 'drain agent') return agent.drain()
    if (fault.kind === 'stop agent') return this.#suspend(agent.process, fault.ms)
    if (!agent.process.isAlive) return
    agent.kill()
    this.#endLater(fault.ms, () => agent.start())
  }

  #restartServer({ ms, restart }: Extract<Fault, { readonly kind: 'restart server' }>): void {
    if (!this.#server.isUp) return
    this.#server.kill()
    this.#outages++
    this.#endLater(ms, () => {
      // A backup from before the end of the session would bring its stream back for days.
      const isClosed = this.#driver?.isFinished === true
      this.#server.restart(isClosed && restart === 'set back' ? 'kept' : restart)
      this.#storeLostMs += ms
      this.#driverDiedMs += ms
      if (restart === 'kept') return
      this.#isStoreLost = true
      this.#storeLostMs = this.#time.nowMs
      const sinceDeathMs = this.#time.nowMs - this.#driverDiedMs
      const isForgotten = this.#driver === null || sinceDeathMs < forgettableMs
      if (isForgotten || this.#record.lostLines > 0) this.#executions.forget()
      // Without a driver, agents do not know whether they may create the stream again.
      if (this.#driver === null) this.#isForgetful = true
    })
  }

  #killDriver(ms: number): void {
    const driver = this.#driver
    if (driver === null || driver.isFinished) return
    driver.kill()
    this.#driver = null
    this.#driverDiedMs = this.#time.nowMs
    // The driver may have deleted a large value from the store before it recorded the value.
    const isStoreLost = this.#time.nowMs - this.#storeLostMs < forgettableMs
    this.#isForgetful ||= isStoreLost
    // A returned driver reports agents that are missing. If it is killed before it has its tasks,
    // the next one does not know that they may have begun there.
    this.#isForgetful ||= this.#time.nowMs - this.#returnedMs < forgettableMs
    this.#executions.forget(({ valueBytes }) => isStoreLost || valueBytes === largeValueBytes)
    this.#endLater(ms, () => this.#startDriver())
  }

  #suspend(process: SimulatedProcess | undefined, ms: number): void {
    if (process?.isRunning !== true) return
    process.stop()
    this.#endLater(ms, () => process.continue())
  }

  #endLater(ms: number, end: () => void): void {
    this.#ongoing++
    this.#time.after(ms, () => {
      this.#ongoing--
      end()
    })
  }
}

/** `inputRandom` draws the sizes of the arguments. */
function drawScenario(random: SeededRandom, inputRandom: SeededRandom): Scenario {
  const cores = Array.from({ length: random.integer(1, 5) }, () => random.integer(1, 4))
  const times = {
    agentTimeoutSeconds: 60,
    lossSeconds: random.pick([2, 4, 10]),
    ownerTtlSeconds: random.pick([4, 10, 30]),
  }
  const hasFailures = random.chance(0.5)
  const hasPriorities = random.chance(0.3)
  const hasLargeValues = random.chance(0.3)
  const hasLargeInputs = inputRandom.chance(0.3)
  const plans = Array.from({ length: tasks }, (_, at): TaskPlan => {
    return {
      uid: `sim-${at}`,
      durationMs: drawDurationMs(random),
      failures: hasFailures && random.chance(0.2) ? random.integer(1, 3) : 0,
      retries: random.integer(0, 3),
      priority: hasPriorities ? random.integer(-1, 1) : 0,
      valueBytes: hasLargeValues && random.chance(0.1) ? largeValueBytes : 10,
      inputBytes: hasLargeInputs && inputRandom.chance(0.1) ? largeValueBytes : 0,
    }
  })
  const limits = { agents: cores.length, tasks, ...times }
  const faults = drawFaults(random, faultsUntilMs, limits)
  return { cores, plans, times, submitMs: random.pick([100, 1000, 5000]), faults }
}

function drawDurationMs(random: SeededRandom): number {
  const [min, max] = random.pick([
    [0.1, 5],
    [5, 50],
    [5, 50],
    [50, 500],
    [500, 4000],
  ] as const)
  return random.between(min, max)
}
