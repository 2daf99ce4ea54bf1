/** A binary heap whose items can also be removed from the middle. */

/** The position of an item, kept up to date by its queue. */
export interface QueueEntry {
  readonly index: number
}

interface Node<T> extends QueueEntry {
  readonly item: T
  index: number
}

/**
 * `peek` takes O(1); `add`, `pop` and `remove` take O(log size). Equal items have no defined order:
 * compare a sequence number for first in, first out.
 */
export class PriorityQueue<T> {
  readonly #nodes: Node<T>[] = []
  readonly #isBefore: (a: T, b: T) => boolean

  constructor(isBefore: (a: T, b: T) => boolean) {
    this.#isBefore = isBefore
  }

  get size(): number {
    return this.#nodes.length
  }

  peek(): T | undefined {
    return this.#nodes[0]?.item
  }

  add(item: T): QueueEntry {
    const node = { item, index: this.#nodes.length }
    this.#nodes.push(node)
    this.#moveUp(node)
    return node
  }

  pop(): T | undefined {
    const first = this.#nodes[0]
    if (first === undefined) return undefined
    this.remove(first)
    return first.item
  }

  /** Removes the item of an entry, which must still be in this queue. */
  remove({ index }: QueueEntry): void {
    const last = this.#nodes.pop()
    if (last === undefined || last.index === index) return
    this.#put(last, index)
    this.#moveUp(last)
    this.#moveDown(last)
  }

  #moveUp(node: Node<T>): void {
    while (node.index > 0) {
      const parent = this.#nodes[(node.index - 1) >> 1]
      if (parent === undefined || !this.#isBefore(node.item, parent.item)) return
      this.#swap(node, parent)
    }
  }

  #moveDown(node: Node<T>): void {
    for (;;) {
      const left = this.#nodes[2 * node.index + 1]
      const right = this.#nodes[2 * node.index + 2]
      if (left === undefined) return
      const next = right !== undefined && this.#isBefore(right.item, left.item) ? right : left
      if (!this.#isBefore(next.item, node.item)) return
      this.#swap(next, node)
    }
  }

  #swap(a: Node<T>, b: Node<T>): void {
    const { index } = a
    this.#put(a, b.index)
    this.#put(b, index)
  }

  #put(node: Node<T>, index: number): void {
    node.index = index
    this.#nodes[index] = node
  }
}
