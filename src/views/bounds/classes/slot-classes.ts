/**
 * Classifies the use of slots. Each second of each core is in exactly one class. Attempts and waits
 * are sorted by time, so that the order of events in the file does not matter.
 */

import { heldResources, type IdleReason, type NodeSize, type CapacityPeriod } from '../slots.ts'
import {
  createSlotSeconds,
  type SlotResource,
  type SlotActivity,
  type SlotSeconds,
} from '../slots.ts'
import { type SlotUse, waitKinds } from '../slots.ts'
import { addScaled, coresIndex, createVector, NodeRoom, RequestRoom } from './node-room.ts'
import { toAmounts, totalSize, unknownRequest, type Vector } from './node-room.ts'
import { StartGaps } from './start-gaps.ts'
import { applyInOrder, TimeStream } from './time-streams.ts'

/** Classifies the slots of a run, and adds its seconds to `sums`. */
export function classifySlots(run: SlotActivity, sums: SlotSeconds): SlotUse {
  const { uses, waits, nodes } = run
  const sweep = new SlotSweep(run, sums)
  const nodeChanges = nodes.flatMap(({ changes, earlier, ...last }, node) => [
    ...earlier.map(({ until }, at) => {
      return { time: until, apply: () => sweep.resize(node, earlier[at + 1] ?? last) }
    }),
    ...changes.map((time, at) => ({ time, apply: () => sweep.move(node, at % 2 === 0) })),
  ])
  const use = (at: number, change: number): void =>
    sweep.use(uses.node[at] ?? 0, uses.request[at] ?? 0, change)
  const streams = [
    new TimeStream(
      Float64Array.from(nodeChanges, ({ time }) => time),
      (at) => nodeChanges[at]?.apply(),
    ),
    new TimeStream(uses.to, (at) => use(at, -1)),
    new TimeStream(waits.from, (at) => sweep.wait(at)),
    new TimeStream(waits.to, (at) => sweep.endWait(at)),
    new TimeStream(uses.from, (at) => use(at, 1)),
  ]
  applyInOrder(streams, run.to, (time) => sweep.advance(time))
  return sweep.result()
}

class SlotSweep {
  readonly #requests: readonly RequestRoom[]
  readonly #nodes: readonly NodeRoom[]
  readonly #waits: SlotActivity['waits']
  /** The position of each waiting task in the queue, from 1; 0 for a wait that has ended. */
  readonly #queuePositions: Uint32Array
  #lastQueuePosition = 0
  readonly #sums: SlotSeconds
  readonly #capacityPeriods: CapacityPeriod[] = []
  readonly #busyAmounts = createVector()
  readonly #heldAmounts = createVector()
  /** The cores of functions that are running in the program itself. */
  #closureCores = 0
  #closureSeconds = 0
  readonly #idleSeconds = createSlotSeconds()
  /** For each reason, the number of the last time span in which slots were idle for that reason. */
  readonly #lastSpan = createSlotSeconds()
  #span = 0
  #spanSeconds = 0
  readonly #gaps = new StartGaps()
  readonly #lastReady: number
  #capacity: Vector
  #sizedAt: number
  #isResized = false
  #notYetReady = 0
  #presentCores = 0
  #fullSeconds = 0
  #noneFreeSeconds = 0
  #now: number

  constructor({ requests, nodes, waits, lastReady, from }: SlotActivity, sums: SlotSeconds) {
    const nextWaits = new Uint32Array(waits.from.length)
    this.#requests = requests.map((request, number) => new RequestRoom(request, number, nextWaits))
    this.#nodes = nodes.map((node) => new NodeRoom(node, requests, this.#requests))
    this.#waits = waits
    this.#queuePositions = new Uint32Array(waits.from.length)
    this.#capacity = totalSize(this.#nodes)
    this.#sizedAt = from
    this.#sums = sums
    this.#lastReady = lastReady
    this.#now = from
  }

  result(): SlotUse {
    this.#updateCapacity()
    this.#endCapacityPeriod()
    const overhead = this.#gaps.usualSlotSeconds()
    this.#sums.taskOverhead += overhead
    // Rounding could give a negative number.
    this.#sums.heldBack = Math.max(0, this.#sums.heldBack - overhead)
    const none = { seconds: 0, capacity: toAmounts(this.#capacity) }
    return {
      sizes: this.#capacityPeriods.length === 0 ? [none] : this.#capacityPeriods,
      held: toAmounts(this.#heldAmounts),
      closureSeconds: this.#closureSeconds,
      fullSeconds: this.#fullSeconds,
      noneFreeSeconds: this.#noneFreeSeconds,
      idleSeconds: this.#idleSeconds,
      notYetReady: this.#notYetReady,
    }
  }

  advance(time: number): void {
    if (time <= this.#now) return
    this.#updateCapacity()
    this.#count(time - this.#now)
    this.#now = time
  }

  wait(at: number): void {
    this.#queuePositions[at] = ++this.#lastQueuePosition
    this.#requests[this.#waits.request[at] ?? 0]?.enqueue(at)
    this.#changeReady(at, 1)
  }

  endWait(at: number): void {
    this.#queuePositions[at] = 0
    this.#changeReady(at, -1)
  }

  #changeReady(wait: number, change: number): void {
    const room = this.#requests[this.#waits.request[wait] ?? 0]
    if (room === undefined) return
    room.ready += change
    const kind = this.#waits.kind[wait]
    if (kind === waitKinds.limit) room.limited += change
    else if (kind === waitKinds.worker) room.starting += change
  }

  use(node: number, request: number, change: number): void {
    const found = this.#nodes[node]
    if (found === undefined) return
    if (change > 0) this.#gaps.end()
    const { taskAmounts, cores, isClosure } = this.#requests[request] ?? unknownRequest
    if (isClosure) this.#closureCores += change * cores
    addScaled(this.#busyAmounts, taskAmounts, change)
    found.use(taskAmounts, change)
  }

  move(node: number, isJoin: boolean): void {
    const found = this.#nodes[node]
    if (found === undefined || found.isPresent === isJoin) return
    this.#presentCores += isJoin ? found.size.cores : -found.size.cores
    found.setPresent(isJoin)
  }

  /** Changes the size of a node. If the node is away, its new size counts as missing. */
  resize(node: number, size: NodeSize): void {
    const found = this.#nodes[node]
    if (found === undefined) return
    this.#endCapacityPeriod()
    if (found.isPresent) this.#presentCores += size.cores - found.size.cores
    found.resize(size)
    this.#isResized = true
  }

  /**
   * Updates the capacity. This is deferred until time passes, because all nodes of a session are
   * resized at the same time.
   */
  #updateCapacity(): void {
    if (this.#isResized) this.#capacity = totalSize(this.#nodes)
    this.#isResized = false
  }

  #endCapacityPeriod(): void {
    const seconds = this.#now - this.#sizedAt
    if (seconds > 0) this.#capacityPeriods.push({ seconds, capacity: toAmounts(this.#capacity) })
    this.#sizedAt = this.#now
  }

  #count(seconds: number): void {
    const cores = this.#capacity[coresIndex] ?? 0
    const ran = Math.min(cores, this.#busyAmounts[coresIndex] ?? 0)
    const away = Math.min(cores - ran, cores - this.#presentCores)
    this.#span++
    this.#spanSeconds = seconds
    this.#sums.ran += ran * seconds
    this.#addIdle('nodeAway', away)
    this.#countHeld(seconds)
    const idle = cores - ran - away
    const blocker = idle > 0 ? this.#findBlocker() : null
    if (this.#isFull(null)) {
      this.#fullSeconds += seconds
      if (blocker === null || this.#isFull(blocker)) this.#noneFreeSeconds += seconds
    }
    if (idle > 0) this.#countIdle(idle, blocker)
  }

  /**
   * Counts the resources in use, up to the capacity. More may be in use, because closures still
   * count after they have given up their slot.
   */
  #countHeld(seconds: number): void {
    for (let at = 0; at < heldResources.length; at++) {
      const heldAmount = Math.min(this.#busyAmounts[at] ?? 0, this.#capacity[at] ?? 0)
      this.#heldAmounts[at] = (this.#heldAmounts[at] ?? 0) + heldAmount * seconds
    }
    this.#closureSeconds += Math.min(this.#closureCores, this.#capacity[coresIndex] ?? 0) * seconds
  }

  /**
   * Adds slots that were idle for a reason. Within a time span, the caller must add the reasons of
   * tasks that fit before it adds missing resources.
   */
  #addIdle(reason: IdleReason, slots: number): void {
    if (slots <= 0) return
    this.#sums[reason] += slots * this.#spanSeconds
    const { heldBack, nameLimit, startingWorkers, [reason]: last } = this.#lastSpan
    // Counts the time span once, even if several requests add the same reason.
    if (last === this.#span) return
    // While tasks that fit are held back, more of a missing resource would not help.
    const isHeldBack = Math.max(heldBack, nameLimit, startingWorkers) === this.#span
    if (isHeldBack && missingReasons.has(reason)) return
    this.#lastSpan[reason] = this.#span
    this.#idleSeconds[reason] += this.#spanSeconds
  }

  #isBefore(room: RequestRoom, other: RequestRoom): boolean {
    return (
      room.firstQueuePosition(this.#queuePositions) < other.firstQueuePosition(this.#queuePositions)
    )
  }

  /** Whether a ready task (ahead of `before`, if given) waits only for slots in use. */
  #isFull(before: RequestRoom | null): boolean {
    return this.#requests.some(
      (room) =>
        room.ready > 0 &&
        room.fitting < room.ranks &&
        (before === null || this.#isBefore(room, before)) &&
        slotResources.has(room.scarcest),
    )
  }

  /** Counts idle slots for tasks that fit first, and then for other tasks, each in queue order. */
  #countIdle(idle: number, blocker: RequestRoom | null): void {
    let [rest, behind, late] = [idle, 0, 0]
    const ahead: { readonly room: RequestRoom; readonly slots: number }[] = []
    for (const room of this.#requests) {
      const { ready, cores } = room
      if (ready <= 0) continue
      const fitted = Math.min(ready, Math.floor(room.fitting / room.ranks))
      const heldCores = Math.min(rest, fitted * cores)
      const lacking = (ready - fitted) * cores
      rest -= heldCores
      if (blocker !== null && !this.#isBefore(room, blocker)) {
        this.#addIdle(blocker.scarcest, heldCores)
        behind += lacking
        continue
      }
      const limited = Math.min(heldCores, room.limited * cores)
      const starting = Math.min(heldCores - limited, room.starting * cores)
      const heldBack = heldCores - limited - starting
      this.#addIdle('nameLimit', limited)
      this.#addIdle('startingWorkers', starting)
      this.#addIdle('heldBack', heldBack)
      late += heldBack
      if (lacking > 0) ahead.push({ room, slots: lacking })
    }
    this.#gaps.add(this.#spanSeconds, late)
    // The entries are sorted only if their missing resources differ, because there may be many.
    if (ahead.some(({ room }) => room.scarcest !== ahead[0]?.room.scarcest)) {
      ahead.sort((a, b) => (this.#isBefore(a.room, b.room) ? -1 : 1))
    }
    if (blocker !== null) ahead.push({ room: blocker, slots: behind })
    for (const { room, slots } of ahead) {
      const part = Math.min(rest, slots)
      this.#addIdle(room.scarcest, part)
      rest -= part
    }
    this.#addIdle('noTaskReady', rest)
    if (this.#now < this.#lastReady) this.#notYetReady += rest * this.#spanSeconds
  }

  /**
   * Returns the request of the first task in the queue that fits on no node. This task delays the
   * tasks behind it, because the queue order is kept.
   */
  #findBlocker(): RequestRoom | null {
    let first: RequestRoom | null = null
    for (const room of this.#requests) {
      if (room.ready <= 0 || room.fitting >= room.ranks || !blockingResources.has(room.scarcest))
        continue
      if (first === null || this.#isBefore(room, first)) first = room
    }
    return first
  }
}

const missingReasons: ReadonlySet<IdleReason> = new Set([...heldResources, 'labels'])
/**
 * A task that lacks one of these resources delays all tasks behind it. A task that lacks a worker
 * or labels delays only tasks with similar requests.
 */
const blockingResources: ReadonlySet<SlotResource> = new Set(['cores', 'gpus', 'memory'])
const slotResources: ReadonlySet<SlotResource> = new Set(['cores', 'workers', 'processes'])
