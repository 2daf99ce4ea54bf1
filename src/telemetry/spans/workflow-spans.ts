/** The spans of workflows: between the session's and those of their tasks, told by events. */

import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { BaseEvent } from '../../events/event.ts'
import { WorkflowEnded, WorkflowStarted } from '../../events/library-events.ts'
import { Envelope } from '../bus.ts'
import type { ScopeSpan } from './span-scope.ts'

/** Who opens and closes spans. */
export interface ScopeBook {
  openScope(name: string, attributes: object, time: number, parentSpanId?: string): ScopeSpan
  closeScope(scope: ScopeSpan, time: number, failure: string | null): FinishedSpan | null
}

export class WorkflowSpans {
  readonly #book: ScopeBook
  readonly #open = new Map<string, ScopeSpan>()

  constructor(book: ScopeBook) {
    this.#book = book
  }

  /** The id of an open workflow's span. */
  spanIdOf(workflowId: unknown): string | undefined {
    return typeof workflowId === 'string' ? this.#open.get(workflowId)?.spanId : undefined
  }

  /** Opens or closes the span that the event tells of; `null` for every other event. */
  admit(event: BaseEvent): Envelope | null {
    if (event instanceof WorkflowStarted) return this.#start(event)
    return event instanceof WorkflowEnded ? this.#end(event) : null
  }

  #start(event: InstanceType<typeof WorkflowStarted>): Envelope {
    const { workflow_id, session_id } = event
    const parent = this.spanIdOf(event.parent_workflow_id)
    const attributes = { session_id, workflow_id }
    const scope = this.#book.openScope('workflow', attributes, event.event_time, parent)
    this.#open.set(workflow_id, scope)
    return new Envelope(event, scope.spanId)
  }

  /** Telemetry that began in the middle knows no span. */
  #end(event: InstanceType<typeof WorkflowEnded>): Envelope | null {
    const { workflow_id, error_message: failure } = event
    const scope = this.#open.get(workflow_id)
    if (scope === undefined) return null
    this.#open.delete(workflow_id)
    const text = typeof failure === 'string' ? failure : null
    const ended = this.#book.closeScope(scope, event.event_time, text)
    return new Envelope(event, scope.spanId, ended)
  }
}
