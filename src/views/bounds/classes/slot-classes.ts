/**
 * Classifies the use of slots: each second of each core is in exactly one class. Sorts attempts and
 * waits by time, so that the order of events in the file does not matter.
 */

import { timesIn } from '../../../tasks/resource-fit.ts'
import type {
  HeldResource,
  NodeSize,
  SizeSpan,
  SlotLimit,
  SlotRequest,
  SlotResource,
  SlotRun,
  SlotSeconds,
  SlotUse,
} from '../slots.ts'
import { oneCore } from '../slots.ts'
import { createHeld, type FreeNode, resizeNode, sizeChangesOf } from './free-node.ts'
import { toFreeNode, TotalSize } from './free-node.ts'
import { IdleTimes } from './idle-times.ts'
import { StartGaps } from './start-gaps.ts'
import { earliestOf, TimeStream } from './time-streams.ts'
import { WaitQueues } from './wait-queues.ts'

/** Adds the seconds of this run to `sums`. */
export function classifySlots(run: SlotRun, sums: SlotSeconds): SlotUse {
  const { uses, waits, nodes } = run
  const slots = new SlotSweep(run, sums)
  const moves = nodes.flatMap(({ changes }, node) =>
    changes.map((time, at) => ({ time, node, isJoin: at % 2 === 0 })),
  )
  const move = (at: number): void => {
    const found = moves[at]
    if (found !== undefined) slots.move(found.node, found.isJoin)
  }
  const sizes = sizeChangesOf(nodes)
  const resize = (at: number): void => {
    const found = sizes[at]
    if (found !== undefined) slots.resize(found.node, found.size)
  }
  const use = (at: number, change: number): void =>
    slots.use(uses.node[at] ?? 0, uses.request[at] ?? 0, change)
  const streams = [
    new TimeStream(
      Float64Array.from(sizes, ({ time }) => time),
      resize,
    ),
    new TimeStream(
      Float64Array.from(moves, ({ time }) => time),
      move,
    ),
    new TimeStream(uses.to, (at) => use(at, -1)),
    new TimeStream(waits.from, (at) => slots.wait(at)),
    new TimeStream(waits.to, (at) => slots.endWait(at)),
    new TimeStream(uses.from, (at) => use(at, 1)),
  ]
  for (;;) {
    const next = earliestOf(streams)
    if (next === null || next.time >= run.to) break
    slots.advance(next.time)
    next.take()
  }
  slots.advance(run.to)
  return slots.toUse()
}

/** The number of additional ranks of a request that fit on all nodes, in total and per resource. */
interface Room {
  ready: number
  /** The number of ready tasks that wait for the limit of their name. */
  limited: number
  /** The number of ready tasks that wait for a worker to start. */
  starting: number
  nodes: number
  fits: number
  cores: number
  gpus: number
  memory: number
  /** Ranks that the request's own limit (workers or processes) allows. */
  limit: number
  /** Ranks that would fit on nodes of the backend without the requested labels. */
  elsewhere: number
}

const noRoom: Room = {
  ready: 0,
  limited: 0,
  starting: 0,
  nodes: 0,
  fits: 0,
  cores: 0,
  gpus: 0,
  memory: 0,
  limit: 0,
  elsewhere: 0,
}

/** Replaces strings parsed from a file by literals, which are faster as property keys. */
function withOwnLimit(request: SlotRequest): SlotRequest {
  const { limit } = request
  return {
    ...request,
    limit: limit === null ? null : limit === 'workers' ? 'workers' : 'processes',
  }
}

/** The state of all slots at the current time, and the sums up to it. */
class SlotSweep {
  readonly #requests: readonly SlotRequest[]
  readonly #rooms: readonly Room[]
  readonly #nodes: readonly FreeNode[]
  readonly #queues: WaitQueues
  readonly #sums: SlotSeconds
  readonly #total = new TotalSize()
  readonly #spans: SizeSpan[] = []
  readonly #busy = createHeld()
  readonly #held = createHeld()
  /** Cores of functions now running in the program itself, and their core-seconds so far. */
  #closureCores = 0
  #closureSeconds = 0
  readonly #idle: IdleTimes
  readonly #gaps = new StartGaps()
  readonly #limitWaits: ReadonlySet<number>
  readonly #workerStarts: ReadonlySet<number>
  readonly #lastReady: number
  #capacity: Readonly<Record<HeldResource, number>>
  /** The time since which the nodes have had the size `#capacity`. */
  #sizedAt: number
  #notYetReady = 0
  #coresHere = 0
  #fullSeconds = 0
  #noneFreeSeconds = 0
  #now: number

  constructor(run: SlotRun, sums: SlotSeconds) {
    const { requests, nodes, waits, limitWaits, workerStarts, lastReady, from } = run
    this.#limitWaits = limitWaits
    this.#workerStarts = workerStarts
    this.#requests = requests.map(withOwnLimit)
    this.#queues = new WaitQueues(waits, requests.length)
    this.#rooms = requests.map(() => ({ ...noRoom }))
    this.#nodes = nodes.map((node) => toFreeNode(node, requests))
    for (const { size } of this.#nodes) this.#total.add(size)
    this.#capacity = this.#total.toCapacity()
    this.#sizedAt = from
    this.#sums = sums
    this.#idle = new IdleTimes(sums)
    this.#lastReady = lastReady
    this.#now = from
  }

  toUse(): SlotUse {
    this.#endSpan()
    const overhead = this.#gaps.usualSlotSeconds()
    this.#sums.taskOverhead += overhead
    // Avoids a negative number due to rounding.
    this.#sums.heldBack = Math.max(0, this.#sums.heldBack - overhead)
    const none = { seconds: 0, capacity: this.#capacity }
    return {
      sizes: this.#spans.length === 0 ? [none] : this.#spans,
      held: this.#held,
      closureSeconds: this.#closureSeconds,
      fullSeconds: this.#fullSeconds,
      noneFreeSeconds: this.#noneFreeSeconds,
      idleSeconds: this.#idle.seconds,
      notYetReady: this.#notYetReady,
    }
  }

  /** Adds the time until `time` to the sums of the current state. */
  advance(time: number): void {
    if (time <= this.#now) return
    this.#count(time - this.#now)
    this.#now = time
  }

  wait(at: number): void {
    this.#changeReady(this.#queues.add(at), at, 1)
  }

  endWait(at: number): void {
    this.#changeReady(this.#queues.remove(at), at, -1)
  }

  #changeReady(request: number, wait: number, change: number): void {
    const room = this.#rooms[request]
    if (room === undefined) return
    room.ready += change
    if (this.#limitWaits.has(wait)) room.limited += change
    else if (this.#workerStarts.has(wait)) room.starting += change
  }

  use(node: number, request: number, change: number): void {
    const found = this.#nodes[node]
    if (found === undefined) return
    if (change > 0) this.#gaps.end()
    const { cores, gpus, memoryMb, ranks, limit } = this.#requests[request] ?? oneCore
    const busy = this.#busy
    busy.cores += change * cores * ranks
    busy.gpus += change * gpus * ranks
    busy.memory += change * memoryMb * ranks
    if (limit === null) this.#closureCores += change * cores
    else busy[limit] += change
    this.#changeNode(found, () => {
      if (limit !== null) found[limit] -= change
      found.cores -= change * cores * ranks
      found.gpus -= change * gpus * ranks
      found.memoryMb -= change * memoryMb * ranks
    })
  }

  move(node: number, isJoin: boolean): void {
    const found = this.#nodes[node]
    if (found === undefined || found.isHere === isJoin) return
    this.#coresHere += isJoin ? found.size.cores : -found.size.cores
    this.#changeNode(found, () => {
      found.isHere = isJoin
    })
  }

  /** If the node is away, its new size counts as missing. */
  resize(node: number, size: NodeSize): void {
    const found = this.#nodes[node]
    if (found === undefined) return
    this.#endSpan()
    this.#total.add(found.size, -1)
    this.#total.add(size)
    this.#capacity = this.#total.toCapacity()
    if (found.isHere) this.#coresHere += size.cores - found.size.cores
    this.#changeNode(found, () => resizeNode(found, size, this.#requests))
  }

  #endSpan(): void {
    const seconds = this.#now - this.#sizedAt
    if (seconds > 0) this.#spans.push({ seconds, capacity: this.#capacity })
    this.#sizedAt = this.#now
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
      const limit = request.limit === null ? unlimited : fitting(free[request.limit], 1)
      room.nodes += sign
      room.fits += sign * Math.min(cores, gpus, memory, limit)
      room.limit += sign * limit
      room.cores += sign * cores
      room.gpus += sign * gpus
      room.memory += sign * memory
    }
    for (const at of free.unlabelled) {
      const [room, request] = [this.#rooms[at], this.#requests[at]]
      if (room === undefined || request === undefined) continue
      room.elsewhere += sign * fittingIn(free, request)
    }
  }

  #count(seconds: number): void {
    const sums = this.#sums
    const { cores } = this.#capacity
    const ran = Math.min(cores, this.#busy.cores)
    const away = Math.min(cores - ran, cores - this.#coresHere)
    sums.ran += ran * seconds
    this.#idle.begin(seconds)
    this.#idle.add('nodeAway', away)
    this.#countHeld(seconds)
    const idle = cores - ran - away
    const blocker = idle > 0 ? this.#findBlocker() : null
    if (this.#isFull(null)) {
      this.#fullSeconds += seconds
      if (blocker === null || this.#isFull(blocker)) this.#noneFreeSeconds += seconds
    }
    if (idle > 0) this.#countIdle(idle, seconds, blocker)
  }

  /**
   * Limited to the capacity, because an in-process task that has passed on its slot is still
   * counted. Not a loop over the resources, because this is called four times per task.
   */
  #countHeld(seconds: number): void {
    const [held, busy, all] = [this.#held, this.#busy, this.#capacity]
    held.cores += Math.min(busy.cores, all.cores) * seconds
    this.#closureSeconds += Math.min(this.#closureCores, all.cores) * seconds
    held.gpus += Math.min(busy.gpus, all.gpus) * seconds
    held.memory += Math.min(busy.memory, all.memory) * seconds
    held.workers += Math.min(busy.workers, all.workers) * seconds
    held.processes += Math.min(busy.processes, all.processes) * seconds
  }

  /** Whether a ready task waits only for slots in use; with `before`, checks only tasks ahead. */
  #isFull(before: Blocker | null): boolean {
    for (let at = 0; at < this.#rooms.length; at++) {
      const room = this.#rooms[at] ?? noRoom
      if (room.ready <= 0) continue
      if (before !== null && !this.#queues.isBefore(at, before.request)) continue
      const { ranks, limit } = this.#requests[at] ?? oneCore
      if (room.fits < ranks && slotResources.has(scarcestOf(room, limit))) return true
    }
    return false
  }

  /** Counts slots first for tasks that fit, then for the others, each in queue order. */
  #countIdle(idle: number, seconds: number, blocker: Blocker | null): void {
    let [rest, behind, late] = [idle, 0, 0]
    const ahead: Lack[] = []
    for (let at = 0; at < this.#rooms.length; at++) {
      const room = this.#rooms[at] ?? noRoom
      if (room.ready <= 0) continue
      const { cores, ranks, limit } = this.#requests[at] ?? oneCore
      const fitted = Math.min(room.ready, Math.floor(room.fits / ranks))
      const held = Math.min(rest, fitted * cores * ranks)
      const lacking = (room.ready - fitted) * cores * ranks
      rest -= held
      const isBehind = blocker !== null && !this.#queues.isBefore(at, blocker.request)
      if (isBehind) this.#idle.add(blocker.resource, held)
      else {
        const limited = Math.min(held, room.limited * cores * ranks)
        const starting = Math.min(held - limited, room.starting * cores * ranks)
        const heldBack = held - limited - starting
        this.#idle.add('nameLimit', limited)
        this.#idle.add('startingWorkers', starting)
        this.#idle.add('heldBack', heldBack)
        late += heldBack
      }
      if (isBehind) behind += lacking
      else if (lacking > 0) {
        ahead.push({ request: at, resource: scarcestOf(room, limit), cores: lacking })
      }
    }
    this.#gaps.add(seconds, late)
    for (const { resource, cores } of this.#inOrder(ahead)) {
      const part = Math.min(rest, cores)
      this.#idle.add(resource, part)
      rest -= part
    }
    if (blocker !== null) {
      const part = Math.min(rest, behind)
      this.#idle.add(blocker.resource, part)
      rest -= part
    }
    this.#idle.add('noTaskReady', rest)
    if (this.#now < this.#lastReady) this.#notYetReady += rest * seconds
  }

  /** Sorts only if the missing resources differ, because there may be many entries. */
  #inOrder(lacks: Lack[]): readonly Lack[] {
    const first = lacks[0]?.resource
    if (lacks.every(({ resource }) => resource === first)) return lacks
    return lacks.toSorted((a, b) => (this.#queues.isBefore(a.request, b.request) ? -1 : 1))
  }

  /** The first task that fits nowhere; it delays the tasks behind it, because order is kept. */
  #findBlocker(): Blocker | null {
    let first: Blocker | null = null
    for (let request = 0; request < this.#rooms.length; request++) {
      const room = this.#rooms[request] ?? noRoom
      const { ranks, limit } = this.#requests[request] ?? oneCore
      if (room.ready <= 0 || room.fits >= ranks) continue
      const resource = scarcestOf(room, limit)
      if (!blocking.has(resource)) continue
      if (first === null || this.#queues.isBefore(request, first.request)) {
        first = { request, resource }
      }
    }
    return first
  }
}

/** A request whose first waiting task fits nowhere, and the missing resource. */
interface Blocker {
  readonly request: number
  readonly resource: SlotResource
}

/** The cores requested by the waiting tasks of a blocked request. */
interface Lack extends Blocker {
  readonly cores: number
}

/** A lack of these delays all tasks behind; a lack of workers or labels only similar tasks. */
const blocking: ReadonlySet<SlotResource> = new Set(['cores', 'gpus', 'memory'])

/** More than any machine has, but finite, so that sums can be subtracted again. */
const unlimited = 1_000_000

const fitting = (free: number, asked: number): number => Math.min(unlimited, timesIn(free, asked))

const fittingIn = (free: FreeNode, { cores, gpus, memoryMb, limit }: SlotRequest): number =>
  Math.min(
    fitting(free.cores, cores),
    fitting(free.gpus, gpus),
    fitting(free.memoryMb, memoryMb),
    limit === null ? unlimited : fitting(free[limit], 1),
  )

/** Returns `labels` if no node has the labels, or if a node without them would fit. */
function scarcestOf(room: Room, limit: SlotLimit | null): SlotResource {
  const { nodes, cores, gpus, memory, elsewhere } = room
  if (nodes === 0 || elsewhere > 0) return 'labels'
  const min = Math.min(cores, gpus, memory, room.limit)
  if (gpus === min) return 'gpus'
  if (memory === min) return 'memory'
  return cores === min || limit === null ? 'cores' : limit
}

/** The resources that a slot consists of. */
const slotResources: ReadonlySet<SlotResource> = new Set(['cores', 'workers', 'processes'])
