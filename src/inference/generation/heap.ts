/** A binary heap whose items can be taken out wherever they lie. */

/** Where an item lies now; the heap keeps it true. */
export interface HeapPlace {
  readonly at: number
}

interface Node<T> {
  readonly item: T
  at: number
}

/** The first item by `isBefore` is found at once; adding and removing cost log(size). */
export class Heap<T> {
  readonly #nodes: Node<T>[] = []
  readonly #isBefore: (a: T, b: T) => boolean

  constructor(isBefore: (a: T, b: T) => boolean) {
    this.#isBefore = isBefore
  }

  get size(): number {
    return this.#nodes.length
  }

  first(): T | undefined {
    return this.#nodes[0]?.item
  }

  add(item: T): HeapPlace {
    const node = { item, at: this.#nodes.length }
    this.#nodes.push(node)
    this.#rise(node)
    return node
  }

  /** The place must be one of this heap's items. */
  remove({ at }: HeapPlace): void {
    const last = this.#nodes.pop()
    if (last === undefined || last.at === at) return
    this.#put(last, at)
    this.#rise(last)
    this.#sink(last)
  }

  #rise(node: Node<T>): void {
    while (node.at > 0) {
      const above = this.#nodes[(node.at - 1) >> 1]
      if (above === undefined || !this.#isBefore(node.item, above.item)) return
      this.#swap(node, above)
    }
  }

  #sink(node: Node<T>): void {
    for (;;) {
      const left = this.#nodes[2 * node.at + 1]
      const right = this.#nodes[2 * node.at + 2]
      if (left === undefined) return
      const next = right !== undefined && this.#isBefore(right.item, left.item) ? right : left
      if (!this.#isBefore(next.item, node.item)) return
      this.#swap(next, node)
    }
  }

  #swap(a: Node<T>, b: Node<T>): void {
    const at = a.at
    this.#put(a, b.at)
    this.#put(b, at)
  }

  #put(node: Node<T>, at: number): void {
    node.at = at
    this.#nodes[at] = node
  }
}
