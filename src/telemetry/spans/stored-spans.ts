/** Finished spans that are not spans of tasks, as JSON text outside of the heap. */

import type { FinishedSpan } from '../../checkpoint/format.ts'
import { SpillFile } from '../metrics/spill-file.ts'
import { withoutDetails } from './finished-span.ts'

/** The size of the number before each span, which is the length of the span's text in bytes. */
const lengthBytes = 4

export class StoredSpans {
  readonly #spans = new SpillFile()

  /** The size of the temporary file. */
  get spilledBytes(): number {
    return this.#spans.bytesInFile
  }

  add(span: FinishedSpan): void {
    const text = Buffer.from(toText(span))
    const length = Buffer.alloc(lengthBytes)
    length.writeUInt32LE(text.length)
    this.#spans.append(length)
    this.#spans.append(text)
  }

  /** Yields copies of the spans, in the order in which they were added. */
  *[Symbol.iterator](): Generator<FinishedSpan> {
    const end = this.#spans.size
    for (let at = 0; at < end;) {
      const length = this.#spans.read(at, lengthBytes).readUInt32LE()
      const text = this.#spans.read(at + lengthBytes, length).toString()
      yield JSON.parse(text) as FinishedSpan
      at += lengthBytes + length
    }
  }
}

/**
 * If the text would exceed V8's maximum string length, replaces the attributes with `truncated:
 * true` and omits the annotations.
 */
function toText(span: FinishedSpan): string {
  try {
    return JSON.stringify(span)
  } catch {
    return JSON.stringify(withoutDetails(span))
  }
}
