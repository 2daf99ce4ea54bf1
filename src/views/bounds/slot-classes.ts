/**
 * What the slots of a run did: each second of each core is in exactly one class. Computed from the
 * attempts and waits of a run sorted by time, so that the order in which events were told does not
 * matter.
 */

/** What a task asks for; tasks that ask for the same share one. */
export interface SlotRequest {
  readonly backend: string
  /** Of each rank. */
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly ranks: number
  readonly labels: Readonly<Record<string, string>>
}

export interface SlotNode {
  readonly backend: string
  readonly nodeId: string
  cores: number
  gpus: number
  /** 0 when it is not known. */
  memoryMb: number
  labels: Readonly<Record<string, string>>
  /** When it joined, left, joined again, and so on. */
  readonly changes: number[]
}

/** Intervals with what they are about; an end may be Infinity. */
export interface Intervals {
  readonly from: Float64Array
  readonly to: Float64Array
  /** Indexes into the requests. */
  readonly request: Uint8Array
}

export type SlotResource = 'cores' | 'gpus' | 'memory' | 'labels'

/** Core-seconds by class; together they are all cores times the length of the run. */
export interface SlotSeconds {
  ran: number
  /** No task was ready for a free slot. */
  noTaskReady: number
  /** Tasks were ready, but the free slots had too little of this resource. */
  readonly noSlotFitted: Record<SlotResource, number>
  /** A ready task fitted a free slot and did not run there yet. */
  heldBack: number
  /** Of nodes that had not joined or had left. */
  nodeAway: number
}

/** All of one backend: a slot of another one is no slot for its tasks. */
export interface SlotRun {
  readonly nodes: readonly SlotNode[]
  readonly requests: readonly SlotRequest[]
  /** Attempts. */
  readonly uses: Intervals & { /** Indexes into the nodes. */ readonly node: Uint32Array }
  /** Tasks that could run and did not. */
  readonly waits: Intervals
  readonly from: number
  readonly to: number
}

export const createSlotSeconds = (): SlotSeconds => ({
  ran: 0,
  noTaskReady: 0,
  noSlotFitted: { cores: 0, gpus: 0, memory: 0, labels: 0 },
  heldBack: 0,
  nodeAway: 0,
})

/** Adds the seconds of this run to `sums`. */
export function classifySlots(run: SlotRun, sums: SlotSeconds): void {
  const { uses, waits, nodes } = run
  const slots = new Slots(run, sums)
  const moves = nodes.flatMap(({ changes }, node) =>
    changes.map((time, at) => ({ time, node, isJoin: at % 2 === 0 })),
  )
  const move = (at: number): void => {
    const found = moves[at]
    if (found !== undefined) slots.move(found.node, found.isJoin)
  }
  const use = (at: number, change: number): void =>
    slots.use(uses.node[at] ?? 0, uses.request[at] ?? 0, change)
  const streams = [
    new Stream(
      Float64Array.from(moves, ({ time }) => time),
      move,
    ),
    new Stream(uses.to, (at) => use(at, -1)),
    new Stream(waits.from, (at) => slots.wait(waits.request[at] ?? 0, 1)),
    new Stream(waits.to, (at) => slots.wait(waits.request[at] ?? 0, -1)),
    new Stream(uses.from, (at) => use(at, 1)),
  ]
  for (;;) {
    const next = earliestOf(streams)
    if (next === null || next.time >= run.to) break
    slots.advance(next.time)
    next.take()
  }
  slots.advance(run.to)
}

/** At equal times the first of them comes first. */
function earliestOf(streams: readonly Stream[]): Stream | null {
  let earliest: Stream | null = null
  for (const stream of streams) {
    if (stream.time < (earliest?.time ?? Infinity)) earliest = stream
  }
  return earliest
}

/** Changes of one kind in the order of their times. */
class Stream {
  /** Of the next change; Infinity after the last one. */
  time = Infinity
  readonly #times: Float64Array
  readonly #order: Uint32Array
  readonly #apply: (at: number) => void
  #next = 0

  constructor(times: Float64Array, apply: (at: number) => void) {
    this.#times = times
    this.#order = orderOf(times)
    this.#apply = apply
    this.#look()
  }

  take(): void {
    this.#apply(this.#order[this.#next] ?? 0)
    this.#next++
    this.#look()
  }

  #look(): void {
    this.time = this.#times[this.#order[this.#next] ?? -1] ?? Infinity
  }
}

/** The indexes in ascending order of their values; most often they are in order already. */
function orderOf(values: Float64Array): Uint32Array {
  const order = new Uint32Array(values.length)
  let isSorted = true
  for (let at = 0; at < values.length; at++) {
    order[at] = at
    if (at > 0 && (values[at] ?? 0) < (values[at - 1] ?? 0)) isSorted = false
  }
  return isSorted ? order : order.toSorted((a, b) => (values[a] ?? 0) - (values[b] ?? 0))
}

/** How many more of one request would fit, over all nodes: altogether and by each resource. */
interface Room {
  ready: number
  nodes: number
  fits: number
  cores: number
  gpus: number
  memory: number
}

interface FreeNode {
  readonly node: SlotNode
  /** The requests that may run here, by their indexes. */
  readonly requests: readonly number[]
  isHere: boolean
  cores: number
  gpus: number
  memoryMb: number
}

const noRoom: Room = { ready: 0, nodes: 0, fits: 0, cores: 0, gpus: 0, memory: 0 }
const oneCore = { cores: 1, gpus: 0, memoryMb: 0, ranks: 1 }

function toFreeNode(node: SlotNode, requests: readonly SlotRequest[]): FreeNode {
  const { backend, cores, gpus, memoryMb } = node
  const isOwn = (request: SlotRequest): boolean =>
    request.backend === backend && hasLabels(node, request)
  return {
    node,
    requests: requests.flatMap((request, at) => (isOwn(request) ? [at] : [])),
    isHere: false,
    cores,
    gpus,
    memoryMb: memoryMb === 0 ? Infinity : memoryMb,
  }
}

/** The state of all slots at one moment, and the sums up to it. */
class Slots {
  readonly #requests: readonly SlotRequest[]
  readonly #rooms: readonly Room[]
  readonly #nodes: readonly FreeNode[]
  readonly #sums: SlotSeconds
  readonly #cores: number
  #coresHere = 0
  #coresBusy = 0
  #now: number

  constructor({ requests, nodes, from }: SlotRun, sums: SlotSeconds) {
    this.#requests = requests
    this.#rooms = requests.map(() => ({ ...noRoom }))
    this.#nodes = nodes.map((node) => toFreeNode(node, requests))
    this.#cores = nodes.reduce((sum, { cores }) => sum + cores, 0)
    this.#sums = sums
    this.#now = from
  }

  /** Counts the time until then with the state of now. */
  advance(time: number): void {
    if (time <= this.#now) return
    this.#count(time - this.#now)
    this.#now = time
  }

  wait(request: number, change: number): void {
    const room = this.#rooms[request]
    if (room !== undefined) room.ready += change
  }

  use(node: number, request: number, change: number): void {
    const found = this.#nodes[node]
    if (found === undefined) return
    const { cores, gpus, memoryMb, ranks } = this.#requests[request] ?? oneCore
    this.#coresBusy += change * cores * ranks
    this.#changeNode(found, () => {
      found.cores -= change * cores * ranks
      found.gpus -= change * gpus * ranks
      found.memoryMb -= change * memoryMb * ranks
    })
  }

  move(node: number, isJoin: boolean): void {
    const found = this.#nodes[node]
    if (found === undefined || found.isHere === isJoin) return
    this.#coresHere += isJoin ? found.node.cores : -found.node.cores
    this.#changeNode(found, () => {
      found.isHere = isJoin
    })
  }

  #changeNode(node: FreeNode, change: () => void): void {
    this.#addToRooms(node, -1)
    change()
    this.#addToRooms(node, 1)
  }

  #addToRooms(free: FreeNode, sign: number): void {
    if (!free.isHere) return
    for (const at of free.requests) {
      const room = this.#rooms[at]
      const request = this.#requests[at]
      if (room === undefined || request === undefined) continue
      const cores = fitting(free.cores, request.cores)
      const gpus = fitting(free.gpus, request.gpus)
      const memory = fitting(free.memoryMb, request.memoryMb)
      room.nodes += sign
      room.fits += sign * Math.min(cores, gpus, memory)
      room.cores += sign * cores
      room.gpus += sign * gpus
      room.memory += sign * memory
    }
  }

  #count(seconds: number): void {
    const sums = this.#sums
    const ran = Math.min(this.#cores, this.#coresBusy)
    const away = Math.min(this.#cores - ran, this.#cores - this.#coresHere)
    sums.ran += ran * seconds
    sums.nodeAway += away * seconds
    const idle = this.#cores - ran - away
    if (idle > 0) this.#countIdle(idle, seconds)
  }

  #countIdle(idle: number, seconds: number): void {
    const sums = this.#sums
    let rest = idle
    for (let at = 0; at < this.#rooms.length; at++) {
      const { ready, fits } = this.#rooms[at] ?? noRoom
      const { cores, ranks } = this.#requests[at] ?? oneCore
      const fitted = Math.min(Math.max(0, ready), Math.floor(fits / ranks))
      const held = Math.min(rest, fitted * cores * ranks)
      sums.heldBack += held * seconds
      rest -= held
    }
    for (let at = 0; at < this.#rooms.length && rest > 0; at++) {
      const room = this.#rooms[at] ?? noRoom
      const { cores, ranks } = this.#requests[at] ?? oneCore
      const lacking = Math.max(0, room.ready - Math.floor(room.fits / ranks))
      const part = Math.min(rest, lacking * cores * ranks)
      if (part > 0) sums.noSlotFitted[scarcestOf(room)] += part * seconds
      rest -= part
    }
    sums.noTaskReady += rest * seconds
  }
}

/** More than any machine has, but finite: sums of it can be taken back. */
const unlimited = 1_000_000

const fitting = (free: number, asked: number): number =>
  asked === 0 ? unlimited : Math.max(0, Math.min(unlimited, Math.floor(free / asked)))

function scarcestOf({ nodes, cores, gpus, memory }: Room): SlotResource {
  if (nodes === 0) return 'labels'
  if (gpus <= memory && gpus <= cores) return 'gpus'
  return memory <= cores ? 'memory' : 'cores'
}

const hasLabels = ({ labels }: SlotNode, request: SlotRequest): boolean =>
  Object.entries(request.labels).every(([name, value]) => labels[name] === value)
