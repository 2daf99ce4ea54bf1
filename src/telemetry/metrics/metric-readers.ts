/**
 * The attached metric readers: bound at start, flushed and shut down at stop, none can hold it up.
 */

import { messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { IMetricReader } from '../otel/otel.ts'
import { type ProducerParts, TableMetricProducer } from '../otel/otel-metrics.ts'

export class MetricReaders {
  readonly #readers: readonly IMetricReader[]
  readonly #parts: Omit<ProducerParts, 'reader'> & { readonly log: Log }

  constructor(
    readers: readonly IMetricReader[],
    parts: Omit<ProducerParts, 'reader'> & { readonly log: Log },
  ) {
    this.#readers = readers
    this.#parts = parts
    readers.forEach((reader, at) => {
      try {
        reader.setMetricProducer(new TableMetricProducer({ ...parts, reader }))
      } catch (error) {
        throw new ValueError(`metricReaders[${at}] cannot be used: ${messageOf(error)}`, {
          field: `metricReaders[${at}]`,
          expected: 'a reader that is not bound to another provider',
          cause: error,
        })
      }
    })
  }

  async close(deadlineMs: number): Promise<void> {
    await Promise.all(this.#readers.map((reader) => this.#closeOne(reader, deadlineMs)))
  }

  async #closeOne(reader: IMetricReader, deadlineMs: number): Promise<void> {
    const { clock, log } = this.#parts
    // A shutdown includes a last collection and export: flushing before would do both twice.
    const closing = async (): Promise<void> => reader.shutdown()
    await boundedWait(clock, deadlineMs, closing()).catch((error: unknown) =>
      log.warn('MetricReaderError', `a metric reader did not shut down: ${messageOf(error)}`),
    )
  }
}
