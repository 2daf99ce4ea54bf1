/**
 * Creates spans for a session, workflows, scopes and tasks that have not ended in the record.
 * Without them, the spans of finished tasks would refer to a missing parent.
 */

import { isPipe } from '../../checkpoint/chain.ts'
import type { CheckpointLine, EventLine, FinishedSpan } from '../../checkpoint/format.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import type { JsonObject, JsonValue } from '../../foundation/json-value.ts'

/** Finds the open spans of one file of a run. Call `addLine` for all lines, and then `toSpans`. */
export class OpenSpans {
  /** The earliest start time of a child, by the id of its open parent. */
  readonly #parents = new Map<string, number>()
  /** The span ids of started tasks. */
  readonly #startedTasks = new Set<string>()
  /** The start events of open workflows, by workflow id. */
  readonly #workflows = new Map<unknown, EventLine>()
  #session: EventLine | null = null
  #lastTime = -Infinity

  addLine(line: CheckpointLine): void {
    if (line.section === 'span') this.#addSpan(line)
    else if (line.section === 'event') this.#addEvent(line)
  }

  #addSpan({ span_id, parent_span_id, name, start_time, end_time }: FinishedSpan): void {
    this.#lastTime = Math.max(this.#lastTime, end_time)
    this.#parents.delete(span_id)
    this.#startedTasks.delete(span_id)
    if (span_id === this.#session?.span_id) this.#session = null
    // The parent of a session is a span of the application, which is not in the record.
    if (parent_span_id === null || name === 'session') return
    const earliest = Math.min(start_time, this.#parents.get(parent_span_id) ?? Infinity)
    this.#parents.set(parent_span_id, earliest)
  }

  #addEvent(line: EventLine): void {
    this.#lastTime = Math.max(this.#lastTime, line.event_time)
    if (line.event_type === 'SessionStarted') this.#session ??= line
    else if (line.event_type === 'TaskStarted') this.#startedTasks.add(line.span_id)
    else if (line.event_type === 'tutti.WorkflowStarted') {
      this.#workflows.set(line['workflow_id'], line)
    } else if (line.event_type === 'tutti.WorkflowEnded') {
      this.#workflows.delete(line['workflow_id'])
    }
  }

  /** Open spans end at the last line of the file and have `tutti.unfinished`. */
  async toSpans(file: string): Promise<FinishedSpan[]> {
    const session = this.#session
    if (session === null) return []
    const { span_id: root, session_id, trace_id } = session
    const toSpan = (name: string, id: string, parent: string | null, more: SpanStart) => ({
      name,
      span_id: id,
      trace_id,
      parent_span_id: parent,
      start_time: more.from,
      end_time: Math.max(this.#lastTime, more.from),
      duration_ms: Math.max(0, this.#lastTime - more.from) * 1000,
      status_code: 'UNSET' as const,
      status_description: null,
      attributes: { session_id, ...more.attributes, 'tutti.unfinished': true },
      events: [],
    })
    const outerOf = (workflow: unknown): string => this.#workflows.get(workflow)?.span_id ?? root
    const spans = [
      toSpan('session', root, null, { from: session.event_time, attributes: { backend: 'tutti' } }),
    ]
    for (const line of this.#workflows.values()) {
      const attributes = { workflow_id: String(line['workflow_id']) }
      const outer = outerOf(line['parent_workflow_id'])
      spans.push(toSpan('workflow', line.span_id, outer, { from: line.event_time, attributes }))
    }
    const known = new Set(spans.map(({ span_id }) => span_id))
    const open = new Set([...this.#parents.keys(), ...this.#startedTasks])
    const others = [...open].filter((id) => !known.has(id))
    const tasks = await findTasks(file, new Set(others))
    for (const id of others) {
      const task = tasks.get(id)
      const from = task?.event_time ?? this.#parents.get(id) ?? this.#lastTime
      const attributes = task === undefined ? {} : taskAttributes(task)
      // A scope has no event, and is known only from its children.
      const name = task === undefined ? 'scope' : 'task'
      spans.push(toSpan(name, id, outerOf(attributes['workflow_id']), { from, attributes }))
    }
    return spans
  }
}

interface SpanStart {
  readonly from: number
  readonly attributes: JsonObject
}

function taskAttributes({ backend, task_id, attributes }: EventLine): Record<string, JsonValue> {
  const { executable, task_type, workflow_id } = attributes
  const workflow = workflow_id === undefined ? {} : { workflow_id }
  return { backend, task_id, executable: executable ?? '', task_type: task_type ?? '', ...workflow }
}

/** Finds the events with which the tasks of these spans begin. A pipe cannot be read twice. */
async function findTasks(file: string, ids: ReadonlySet<string>): Promise<Map<string, EventLine>> {
  const found = new Map<string, EventLine>()
  if (ids.size === 0 || isPipe(file)) return found
  for await (const batch of readBatches(file, { skipSpans: true })) {
    for (const line of batch) {
      if (line.section !== 'event' || line.task_id === null || !ids.has(line.span_id)) continue
      if (!found.has(line.span_id)) found.set(line.span_id, line)
    }
  }
  return found
}
