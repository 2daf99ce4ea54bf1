/** The threads of a model when nobody says: with more than are free, llama.cpp crawls. */

export interface CoreFacts {
  /** Cores that this process may use. */
  readonly available: number
  readonly installed: number
  /** Mean number of busy cores of the whole machine, of late. */
  readonly load: number
}

/** At least one. The machine's load says nothing about a process that has cores of its own. */
export function freeCores({ available, installed, load }: CoreFacts): number {
  const free = available < installed ? available : available - Math.round(load)
  return Math.max(1, free)
}
