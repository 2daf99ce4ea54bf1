/** The data of server-sent events, out of the bytes that carry them. */

import { createParser } from 'eventsource-parser'
import { inferenceError } from '../../generation/inference-errors.ts'

/** An event is a token or a few; more than this is no event. */
const longestEvent = 8 << 20

/**
 * Gives each event's data in order, and asks for more bytes only when the last one was taken.
 * Throws `EngineContractError` when an event does not end.
 */
export async function* eventData(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  const ready: string[] = []
  let isEndless = false
  const parser = createParser({
    maxBufferSize: longestEvent,
    onEvent: ({ data }) => ready.push(data),
    onError: ({ type }) => {
      isEndless ||= type === 'max-buffer-size-exceeded'
    },
  })
  for await (const chunk of bytes) {
    parser.feed(decoder.decode(chunk, { stream: true }))
    yield* ready.splice(0)
    if (isEndless) {
      throw inferenceError('EngineContractError', 'the server sent an event without an end')
    }
  }
}
