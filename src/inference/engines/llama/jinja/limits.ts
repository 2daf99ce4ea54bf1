/**
 * Limits the cost of rendering a template, so that it cannot block the model's process. Statements,
 * expressions and values cost steps.
 */

/** An error in a template. `isRaised` says whether the template itself rejects the conversation. */
export class TemplateError extends Error {
  readonly isRaised: boolean

  constructor(message: string, isRaised = false) {
    super(message)
    this.isRaised = isRaised
  }
}

/** Thrown if a template exceeds a limit. The template is at fault, not the messages. */
export class TemplateLimitError extends TemplateError {}

const maxSteps = 1_000_000
/** The maximum number of characters in a text. Request bodies are smaller. */
const maxTextChars = 16 << 20
/** The maximum number of characters to write. Captured text that is written counts twice. */
const maxOutputChars = 64 << 20
const maxDepth = 200

// A global variable is sufficient, because rendering is synchronous.
let stepsLeft = Infinity
let outputChars = 0
let depth = 0

/** Runs `render` with a new budget. Converts any error to a `TemplateError`. */
export function withLimits<T>(render: () => T): T {
  stepsLeft = maxSteps
  outputChars = 0
  depth = 0
  try {
    return render()
  } catch (error) {
    throw toTemplateError(error)
  } finally {
    stepsLeft = Infinity
  }
}

/** The parser and templates are recursive, so they may exceed limits of JavaScript. */
function toTemplateError(error: unknown): TemplateError {
  if (error instanceof TemplateError) return error
  const message = error instanceof Error ? error.message : String(error)
  if (/call stack/i.test(message))
    return new TemplateLimitError('the template is nested too deeply')
  if (/string length/i.test(message)) return new TemplateLimitError('a text is too long')
  return new TemplateError(`the template fails: ${message}`)
}

/** Charges for work. One step takes about a microsecond. */
export function spend(steps: number): void {
  stepsLeft -= steps
  // The comparison is also false for NaN.
  if (!(stepsLeft >= 0)) throw new TemplateLimitError('the template takes too many steps')
}

export function spendChars(length: number): void {
  if (length > maxTextChars) throw new TemplateLimitError('a text is too long')
  spend(Math.max(0, length) / 128)
}

export function spendOutput(text: string): void {
  outputChars += text.length
  if (outputChars > maxOutputChars) throw new TemplateLimitError('the template writes too much')
}

export const spendItems = (count: number): void => spend(count / 4)

export const spendSearch = (text: string, part: string): void =>
  spend((text.length / 64) * (1 + part.length / 512))

export function fail(message: string): never {
  throw new TemplateError(message)
}

/** Runs `action` one level deeper. Throws an error with `message` if the nesting is too deep. */
export function withDepthLimit<T>(action: () => T, message: string): T {
  if (++depth > maxDepth) throw new TemplateLimitError(message)
  const result = action()
  depth--
  return result
}
