/**
 * Limits the cost of a template, so that it cannot block the model's process. Statements and
 * expressions have a cost, and so do the values that operations read and create.
 */

/** An error of a template. `isRaised` if the template itself rejects the conversation. */
export class TemplateError extends Error {
  readonly isRaised: boolean

  constructor(message: string, isRaised = false) {
    super(message)
    this.isRaised = isRaised
  }
}

/** The template exceeds a limit, as it would with any other messages. */
export class TooCostly extends TemplateError {}

/** The maximum number of steps of a rendering. */
const maxSteps = 1_000_000
/** The maximum number of characters of a text. Request bodies are smaller. */
const maxText = 16 << 20
/** The maximum depth of nested calls and values. */
const maxDepth = 200

// A global is sufficient, because rendering is synchronous.
let stepsLeft = Infinity
let depth = 0

/** Runs `render` with its own budget. Any error is converted to a `TemplateError`. */
export function withinLimits<T>(render: () => T): T {
  stepsLeft = maxSteps
  depth = 0
  try {
    return render()
  } catch (error) {
    throw toTemplateError(error)
  } finally {
    stepsLeft = Infinity
  }
}

/** Explains JavaScript's own limits, because parser and templates are recursive. */
function toTemplateError(error: unknown): TemplateError {
  if (error instanceof TemplateError) return error
  const message = error instanceof Error ? error.message : String(error)
  if (/call stack/i.test(message)) return new TooCostly('the template is nested too deeply')
  if (/string length/i.test(message)) return new TooCostly('a text is too long')
  return new TemplateError(`the template fails: ${message}`)
}

/** Charges for work. A step takes about a microsecond. */
export function spend(steps: number): void {
  stepsLeft -= steps
  // The comparison is also false for NaN.
  if (!(stepsLeft >= 0)) throw new TooCostly('the template takes too many steps')
}

/** Charges for reading or creating a text of this length. */
export function spendChars(length: number): void {
  if (length > maxText) throw new TooCostly('a text is too long')
  spend(Math.max(0, length) / 128)
}

/** Charges for reading or creating this many items. */
export const spendItems = (count: number): void => spend(count / 4)

/** Charges for a search. The cost grows with the length of the part. */
export const spendSearch = (text: string, part: string): void =>
  spend((text.length / 64) * (1 + part.length / 512))

/** Runs `action` one level deeper. The message says what is nested too deeply. */
export function withDepthLimit<T>(action: () => T, message: string): T {
  if (++depth > maxDepth) throw new TooCostly(message)
  const result = action()
  depth--
  return result
}
