/** Finds stop texts in a stream of text. It knows nothing of tokens. */

/** Holds back what may be the beginning of a stop text, so that none of it is ever told. */
export class StopScanner {
  readonly #stops: readonly string[]
  #held = ''
  #hasStopped = false

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '')
  }

  get hasStopped(): boolean {
    return this.#hasStopped
  }

  get isHolding(): boolean {
    return this.#held !== ''
  }

  /** The text that can be told now. The stop text that is complete first wins. */
  push(text: string): string {
    if (this.#hasStopped) return ''
    const all = this.#held + text
    const at = firstStop(all, this.#stops)
    if (at !== null) {
      this.#hasStopped = true
      this.#held = ''
      return all.slice(0, at)
    }
    const kept = longestBeginning(all, this.#stops)
    this.#held = all.slice(all.length - kept)
    return all.slice(0, all.length - kept)
  }

  /** What was held: nothing follows that could complete it. */
  flush(): string {
    const held = this.#held
    this.#held = ''
    return held
  }
}

function firstStop(text: string, stops: readonly string[]): number | null {
  let best: { readonly at: number; readonly end: number } | null = null
  for (const stop of stops) {
    const at = text.indexOf(stop)
    if (at === -1) continue
    const end = at + stop.length
    if (best === null || end < best.end || (end === best.end && at < best.at)) best = { at, end }
  }
  return best === null ? null : best.at
}

/** How many characters at the text's end could begin a stop text. */
export function longestBeginning(text: string, stops: readonly string[]): number {
  let longest = 0
  for (const stop of stops) {
    const most = Math.min(stop.length - 1, text.length)
    for (let length = most; length > longest; length--) {
      if (stop.startsWith(text.slice(text.length - length))) {
        longest = length
        break
      }
    }
  }
  return longest
}
