/** The sizes of a model; `vocab` must be larger than the 256 byte tokens plus a few. */
export interface RandomModelOptions {
  readonly dim: number
  readonly layers: number
  readonly heads: number
  readonly hidden: number
  readonly vocab: number
  /** The type of all weights except norms, which are F32. */
  readonly precision: 'F32' | 'F16' | 'Q8_0'
  /** The chat template, in Jinja. */
  readonly template?: string
  /** Control tokens that the template uses. */
  readonly specialTokens?: readonly string[]
  /** The maximum number of tokens of prompt and answer together. Default 2048. */
  readonly context?: number
  /** How the vectors of tokens are pooled, which makes it an embedding model: 1 mean, 3 last. */
  readonly pooling?: number
}

export function writeRandomModel(path: string, options: RandomModelOptions): void

/** The sizes of the model that the adapter is for, and the rank and strength of the adapter. */
export interface RandomAdapterOptions {
  readonly dim: number
  readonly layers: number
  readonly hidden: number
  readonly rank: number
  readonly alpha: number
}

export function writeRandomAdapter(path: string, options: RandomAdapterOptions): void
