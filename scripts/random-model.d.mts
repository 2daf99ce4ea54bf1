/** The sizes of a model; at least as many tokens as there are bytes, and a few. */
export interface RandomModelOptions {
  readonly dim: number
  readonly layers: number
  readonly heads: number
  readonly hidden: number
  readonly vocab: number
  /** Of all weights but those of the norms, which are F32. */
  readonly precision: 'F32' | 'F16' | 'Q8_0'
  /** The chat template, in Jinja. */
  readonly template?: string
  /** Control tokens that the template uses. */
  readonly specialTokens?: readonly string[]
  /** Tokens of prompt and answer together. Default 2048. */
  readonly context?: number
}

export function writeRandomModel(path: string, options: RandomModelOptions): void
