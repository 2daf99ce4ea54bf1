/** The tasks of a run as CSV: a header, then one row per task. Pure. */

import { isLibraryAttribute } from '../../tasks/task-fields.ts'
import type { RunPass } from '../../views/all-panels.ts'
import { numberOf, textOf, type ViewEvent } from '../../views/panel.ts'
import { commandText } from '../../views/readable.ts'
import { findHere } from '../../views/task-index.ts'
import { eachTask, type TaskView } from '../../views/tasks.ts'

type Value = string | number | null

/** Details of a task that its events contain but the views do not. */
interface TaskDetails {
  backend: string
  attempts: number
  /** `null` for prompts, which use no cores. */
  cores: number | null
  gpus: number | null
  cpuSeconds: number | null
  peakMemoryBytes: number | null
  command: string
  exitCode: number | null
  errorMessage: string
  /** The user's attributes with their column numbers; `null` if there are none. */
  attributes: readonly (readonly [column: number, value: Value])[] | null
}

type Column = readonly [head: string, value: (task: TaskView, details: TaskDetails) => Value]

const columns: readonly Column[] = [
  ['uid', ({ uid }) => uid],
  ['name', ({ name }) => name],
  ['state', ({ state }) => state],
  ['backend', (_, { backend }) => backend],
  ['node', ({ nodeId }) => nodeId],
  ['worker', ({ workerId }) => workerId],
  ['attempts', ({ story }, { attempts }) => (story.started === null ? 0 : Math.max(1, attempts))],
  ['cores', (_, { cores }) => cores],
  ['gpus', (_, { gpus }) => gpus],
  ['created', ({ story }) => story.created],
  ['waited_seconds', ({ waited }) => waited],
  ['ran_seconds', ({ ran }) => ran],
  ['cpu_seconds', (_, { cpuSeconds }) => cpuSeconds],
  ['peak_memory_bytes', (_, { peakMemoryBytes }) => peakMemoryBytes],
  ['command', (_, { command }) => command],
  ['exit_code', (_, { exitCode }) => exitCode],
  ['error_type', ({ errorType }) => errorType],
  ['error_message', (_, { errorMessage }) => errorMessage],
  ['scope', ({ scope }) => scope],
]

const rowsAtOnce = 1000
const maxCommandLength = 4096
/** Attributes beyond this number get no column, so that rows stay short. */
const maxAttributes = 1000

const newDetails = (): TaskDetails => ({
  backend: '',
  attempts: 0,
  cores: null,
  gpus: null,
  cpuSeconds: null,
  peakMemoryBytes: null,
  command: '',
  exitCode: null,
  errorMessage: '',
  attributes: null,
})

/** Collects the whole run before any row is written, because a later event may change any row. */
export class CsvTable {
  readonly #pass: RunPass
  readonly #details: (TaskDetails | undefined)[] = []
  /** The column number of each user attribute, by name. */
  readonly #attributes = new Map<string, number>()

  /** The caller must pass each event to `pass` before `take`. */
  constructor(pass: RunPass) {
    this.#pass = pass
  }

  take(event: ViewEvent): void {
    const { task_id, event_type: type, attributes } = event
    const task = task_id === null ? -1 : findHere(this.#pass.counts.index, task_id)
    if (task === -1) return
    const details = (this.#details[task] ??= newDetails())
    const attempt = numberOf(event.attempt) ?? numberOf(attributes['attempt']) ?? 0
    details.attempts = Math.max(details.attempts, attempt)
    if (type === 'TaskCreated') details.attributes = this.#ownAttributes(attributes)
    else if (type === 'TaskSubmitted') Object.assign(details, submissionIn(event))
    else if (isStart.has(type)) Object.assign(details, noEnd)
    else if (isEnd.has(type) && attributes['reused'] !== true) {
      Object.assign(details, endIn(event))
    }
  }

  /** Yields many rows at a time, in order of creation. Times are wall-clock seconds. */
  *rows(): Generator<string> {
    const heads = columns.map(([head]) => head)
    const own = Array.from(this.#attributes.keys(), (name) => this.#headOf(name, heads))
    let piece = `${[...heads, ...own].map(cell).join(',')}\r\n`
    let count = 0
    for (const task of eachTask(this.#pass)) {
      const details = this.#details[task.task] ?? newDetails()
      const values = columns.map(([, value]) => value(task, details))
      const further: Value[] = own.map(() => null)
      for (const [column, value] of details.attributes ?? []) further[column] = value
      piece += `${[...values, ...further].map(cell).join(',')}\r\n`
      if (++count % rowsAtOnce !== 0) continue
      yield piece
      piece = ''
    }
    yield piece
  }

  /** Renames an attribute with the name of a column, avoiding the names of other attributes. */
  #headOf(name: string, heads: readonly string[]): string {
    let head = name
    while (heads.includes(head) || (head !== name && this.#attributes.has(head))) {
      head = `attributes.${head}`
    }
    return head
  }

  #ownAttributes(attributes: ViewEvent['attributes']): TaskDetails['attributes'] {
    const found: (readonly [number, Value])[] = []
    for (const [name, value] of Object.entries(attributes)) {
      if (isLibraryAttribute(name)) continue
      let column = this.#attributes.get(name)
      if (column === undefined && this.#attributes.size < maxAttributes) {
        column = this.#attributes.size
        this.#attributes.set(name, column)
      }
      if (column !== undefined) found.push([column, toValue(value)])
    }
    return found.length === 0 ? null : found
  }
}

const isStart = new Set(['TaskStarted', 'tutti.AttemptStarted'])
const isEnd = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled'])

function submissionIn({ backend, attributes }: ViewEvent): Partial<TaskDetails> {
  const isPrompt = attributes['task_type'] === 'ai'
  const given = attributes['resources'] as Readonly<Record<string, unknown>> | null | undefined
  const { cores, gpus, ranks } = given ?? {}
  const count = numberOf(ranks) ?? 1
  const args = attributes['tutti.arguments']
  const words = Array.isArray(args) ? args.map(textOf) : []
  const program = attributes['task_type'] === 'compute' ? textOf(attributes['executable']) : ''
  return {
    backend,
    cores: isPrompt ? null : (numberOf(cores) ?? 1) * count,
    gpus: isPrompt ? null : (numberOf(gpus) ?? 0) * count,
    command: program === '' ? '' : commandText(program, words, maxCommandLength),
  }
}

const noEnd = { cpuSeconds: null, peakMemoryBytes: null, exitCode: null, errorMessage: '' }

const endIn = ({ attributes }: ViewEvent): Partial<TaskDetails> => ({
  cpuSeconds: numberOf(attributes['cpu_seconds']),
  peakMemoryBytes: numberOf(attributes['peak_memory_bytes']),
  exitCode: numberOf(attributes['exit_code']),
  errorMessage: textOf(attributes['error_message']),
})

const toValue = (value: unknown): Value =>
  typeof value === 'string' || typeof value === 'number' ? value : JSON.stringify(value)

/** Spreadsheets ignore white space before a formula, and some accept full-width signs. */
const formulaStart = /^(?:\s*[=+\-@＝＋－＠]|[\t\r\n])/

/** Escapes a cell (RFC 4180). Prefixes text that looks like a formula with a quote. */
function cell(value: Value): string {
  if (value === null) return ''
  if (typeof value === 'number') return String(value)
  const text = formulaStart.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
