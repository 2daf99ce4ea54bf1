/** An engine listener for tests, which records its calls and can pause requests. */

import type {
  GenerationDelta,
  GenerationEnd,
  GenerationListener,
  ToolCall,
  ToolCallPiece,
} from '../inference/generation/inference-engine.ts'
import { Waiters } from './waiters.ts'

/** The recorded calls for one request. */
export interface RecordedGeneration {
  readonly deltas: GenerationDelta[]
  readonly ends: GenerationEnd[]
  /** The number of deltas that arrived after the request had ended. */
  late: number
}

/** Records calls by request id, including calls that break the contract. */
export class GenerationRecorder implements GenerationListener {
  readonly #records = new Map<string, RecordedGeneration>()
  readonly #waiters = new Waiters()
  /** Called for every delta. The request pauses until a returned promise resolves. */
  onDelta: (id: string) => Promise<void> | undefined = () => undefined

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    const record = this.of(id)
    if (record.ends.length > 0) record.late++
    record.deltas.push(delta)
    this.#waiters.wake()
    return this.onDelta(id)
  }

  end(id: string, end: GenerationEnd): void {
    this.of(id).ends.push(end)
    this.#waiters.wake()
  }

  /** The ids of all requests for which calls were recorded. */
  get ids(): readonly string[] {
    return [...this.#records.keys()]
  }

  /** The recorded calls for a request. */
  of(id: string): RecordedGeneration {
    const known = this.#records.get(id)
    if (known !== undefined) return known
    const record = { deltas: [], ends: [], late: 0 }
    this.#records.set(id, record)
    return record
  }

  /** The text of all deltas of a request, joined. */
  textOf(id: string): string {
    return this.of(id)
      .deltas.map(({ text }) => text)
      .join('')
  }

  /** The tool calls of a request, assembled from all deltas. */
  toolCallsOf(id: string): readonly ToolCall[] {
    const { deltas } = this.of(id)
    const pieces = deltas.flatMap(({ toolCallPieces = [] }) => toolCallPieces)
    const calls = pieces.flatMap(({ index, id: call = '', name }) =>
      name === undefined ? [] : [{ id: call, name, arguments: joinArguments(pieces, index) }],
    )
    return [...deltas.flatMap(({ toolCalls = [] }) => toolCalls), ...calls]
  }

  /** Whether the request was reported as ended. */
  hasEnded(id: string): boolean {
    return this.of(id).ends.length > 0
  }

  /** Resolves as soon as the condition holds. Checks it now and after every call. */
  until(isMet: () => boolean): Promise<void> {
    return this.#waiters.until(isMet)
  }
}

const joinArguments = (pieces: readonly ToolCallPiece[], index: number): string =>
  pieces.flatMap((piece) => (piece.index === index ? piece.arguments : [])).join('')
