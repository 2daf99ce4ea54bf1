/** Why a model cannot be loaded, within its process; the engine makes it an `InferenceError`. */

/** A model that cannot be loaded, and what to do about it. */
export class LoadError extends Error {
  readonly hint: string

  constructor(message: string, hint: string, cause?: unknown) {
    super(message, { cause })
    this.hint = hint
  }
}
