/** The tasks of a run as CSV: a header, and one row per task. */

import { terminalEvents } from '../../events/vocabulary.ts'
import { isLibraryAttribute } from '../../tasks/task-fields.ts'
import type { RunPass } from '../../views/all-panels.ts'
import { numberOf, textOf, type ViewEvent } from '../../views/panel.ts'
import { commandText } from '../../views/readable.ts'
import { findInFile } from '../../views/task-index.ts'
import { eachTask, type TaskView } from '../../views/tasks.ts'

type CellValue = string | number | null

const createDetails = () => ({
  backend: '',
  attempts: 0,
  /** `null` for prompts, which use no cores. */
  cores: null as number | null,
  gpus: null as number | null,
  cpuSeconds: null as number | null,
  peakMemoryBytes: null as number | null,
  command: '',
  exitCode: null as number | null,
  errorMessage: '',
  attributes: null as readonly (readonly [column: number, value: CellValue])[] | null,
})

type TaskDetails = ReturnType<typeof createDetails>

type Column = readonly [head: string, value: (task: TaskView, details: TaskDetails) => CellValue]

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

const rowsPerChunk = 1000
const maxCommandLength = 4096
/** The maximum number of attribute columns. Further attributes are left out. */
const maxAttributes = 1000

/** Collects the whole run, because any later event may change a row. */
export class CsvTable {
  readonly #pass: RunPass
  readonly #details: (TaskDetails | undefined)[] = []
  readonly #attributes = new Map<string, number>()

  /** The caller must pass each event to `pass` before it calls `addEvent`. */
  constructor(pass: RunPass) {
    this.#pass = pass
  }

  addEvent(event: ViewEvent): void {
    const { task_id, event_type: type, attributes } = event
    const task = task_id === null ? -1 : findInFile(this.#pass.counts.index, task_id)
    if (task === -1) return
    const details = (this.#details[task] ??= createDetails())
    const attempt = numberOf(event.attempt) ?? numberOf(attributes['attempt']) ?? 0
    details.attempts = Math.max(details.attempts, attempt)
    if (type === 'TaskCreated') details.attributes = this.#readUserAttributes(attributes)
    else if (type === 'TaskSubmitted') Object.assign(details, readSubmission(event))
    else if (startEvents.has(type)) Object.assign(details, emptyResult)
    else if (terminalEvents.has(type) && attributes['reused'] !== true) {
      Object.assign(details, readResult(event))
    }
  }

  /**
   * Yields the header and the rows as text, many rows at a time. Tasks are in the order of their
   * creation. Times are in wall-clock seconds.
   */
  *rows(): Generator<string> {
    const headers = columns.map(([head]) => head)
    const attributeHeaders = Array.from(this.#attributes.keys(), (name) =>
      this.#attributeHeader(name, headers),
    )
    let chunk = `${[...headers, ...attributeHeaders].map(formatCell).join(',')}\r\n`
    let count = 0
    for (const task of eachTask(this.#pass)) {
      const details = this.#details[task.task] ?? createDetails()
      const values = columns.map(([, value]) => value(task, details))
      const attributeValues: CellValue[] = attributeHeaders.map(() => null)
      for (const [column, value] of details.attributes ?? []) attributeValues[column] = value
      chunk += `${[...values, ...attributeValues].map(formatCell).join(',')}\r\n`
      if (++count % rowsPerChunk !== 0) continue
      yield chunk
      chunk = ''
    }
    yield chunk
  }

  #attributeHeader(name: string, heads: readonly string[]): string {
    let head = name
    while (heads.includes(head) || (head !== name && this.#attributes.has(head))) {
      head = `attributes.${head}`
    }
    return head
  }

  #readUserAttributes(attributes: ViewEvent['attributes']): TaskDetails['attributes'] {
    const found: (readonly [number, CellValue])[] = []
    for (const [name, value] of Object.entries(attributes)) {
      if (isLibraryAttribute(name)) continue
      let column = this.#attributes.get(name)
      if (column === undefined && this.#attributes.size < maxAttributes) {
        column = this.#attributes.size
        this.#attributes.set(name, column)
      }
      if (column !== undefined) found.push([column, toCellValue(value)])
    }
    return found.length === 0 ? null : found
  }
}

const startEvents = new Set(['TaskStarted', 'tutti.AttemptStarted'])

function readSubmission({ backend, attributes }: ViewEvent): Partial<TaskDetails> {
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

const emptyResult = { cpuSeconds: null, peakMemoryBytes: null, exitCode: null, errorMessage: '' }

const readResult = ({ attributes }: ViewEvent): Partial<TaskDetails> => ({
  cpuSeconds: numberOf(attributes['cpu_seconds']),
  peakMemoryBytes: numberOf(attributes['peak_memory_bytes']),
  exitCode: numberOf(attributes['exit_code']),
  errorMessage: textOf(attributes['error_message']),
})

const toCellValue = (value: unknown): CellValue =>
  typeof value === 'string' || typeof value === 'number' ? value : JSON.stringify(value)

/** Spreadsheets ignore white space before a formula, and some accept full-width signs. */
const formulaPattern = /^(?:\s*[=+\-@＝＋－＠]|[\t\r\n])/

/** Escapes a cell as in RFC 4180. Adds a `'` before text that looks like a formula. */
function formatCell(value: CellValue): string {
  if (value === null) return ''
  if (typeof value === 'number') return String(value)
  const text = formulaPattern.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
