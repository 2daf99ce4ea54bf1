/** The latest responses of a server, in memory. Later requests name them or their items. */

import {
  missingItemError,
  missingResponseError,
  unknownResponseError,
  type Item,
  type ItemReference,
  type SourceItem,
} from './response-request.ts'

interface StoredResponse {
  readonly owner: string
  /** The items of the conversation before this response. */
  readonly items: readonly Item[]
  /** The response as its client got it. A text, because many small objects cost time. */
  readonly json: string
  readonly bytes: number
}

const maxResponses = 1000
const maxBytes = 64 << 20

/** Beyond a limit, drops the oldest responses. Each owner can use only its own responses. */
export class ResponseStore {
  readonly #responses = new Map<string, StoredResponse>()
  /** Starts at the oldest response. Kept, because a new iterator would skip every dropped entry. */
  #oldest = this.#responses.entries()
  #bytes = 0

  /**
   * Returns the whole conversation that a request continues. Throws `HttpError` for an id that is
   * not stored.
   */
  resolve(
    owner: string,
    input: string | readonly Item[],
    previousId: string | null | undefined,
  ): SourceItem[] {
    const previous = typeof previousId === 'string' ? this.#find(owner, previousId) : undefined
    if (typeof previousId === 'string' && previous === undefined) {
      throw missingResponseError(previousId)
    }
    const conversation = previous === undefined ? [] : [...previous.items, ...readOutput(previous)]
    const earlier = conversation.map((item) => ({ item, path: 'previous_response_id' }))
    const given = typeof input === 'string' ? [toUserMessage(input)] : input
    const newItems = given.map((item, at) => {
      const path = typeof input === 'string' ? 'input' : `input[${at}]`
      return { item: this.#dereference(owner, item, `${path}.id`), path }
    })
    return [...earlier, ...newItems]
  }

  /** `items` is the conversation before the response, and `json` the whole response. */
  add(owner: string, id: string, items: readonly Item[], json: string): void {
    const bytes = estimateBytes(items) + 2 * json.length
    if (bytes > maxBytes) return
    this.#responses.set(id, { owner, items, json, bytes })
    this.#bytes += bytes
    while (this.#responses.size > maxResponses || this.#bytes > maxBytes) this.#dropOldest()
  }

  /** Throws `HttpError` for a response that is not stored, or that has another owner. */
  getJson(owner: string, id: string): string {
    const response = this.#find(owner, id)
    if (response === undefined) throw unknownResponseError(id)
    return response.json
  }

  /** Throws as `getJson` does. Responses that continue this one stay. */
  delete(owner: string, id: string): void {
    const response = this.#find(owner, id)
    if (response === undefined) throw unknownResponseError(id)
    this.#responses.delete(id)
    this.#bytes -= response.bytes
  }

  #dropOldest(): void {
    const { value } = this.#oldest.next()
    // An iterator that has reached the end stays there.
    if (value === undefined) this.#oldest = this.#responses.entries()
    else {
      this.#responses.delete(value[0])
      this.#bytes -= value[1].bytes
    }
  }

  #find(owner: string, id: string): StoredResponse | undefined {
    const response = this.#responses.get(id)
    return response?.owner === owner ? response : undefined
  }

  #dereference(owner: string, item: Item, param: string): Item {
    if (!isReference(item)) return item
    const { responseId, index } = parseItemId(item.id)
    const response = this.#find(owner, responseId)
    const found = response && readOutput(response)[index]
    if (found === undefined) throw missingItemError(item.id, param)
    return found
  }
}

const readOutput = ({ json }: StoredResponse): readonly Item[] =>
  (JSON.parse(json) as { output: readonly Item[] }).output

/** Counts two bytes per character and some for each value. Encoding as JSON would take longer. */
function estimateBytes(value: unknown): number {
  if (typeof value === 'string') return 2 * value.length
  let bytes = valueBytes
  const isObject = typeof value === 'object' && value !== null
  const items: readonly unknown[] = Array.isArray(value)
    ? value
    : isObject
      ? Object.values(value)
      : []
  for (const item of items) bytes += estimateBytes(item)
  return bytes
}

const valueBytes = 16

const isReference = (item: Item): item is ItemReference =>
  !('role' in item) && (item.type ?? 'item_reference') === 'item_reference'

const toUserMessage = (content: string): Item => ({ role: 'user', content })

const responsePrefix = 'resp_'

/** The id of an item contains the id of its response, and the position of the item. */
export const toItemId = (prefix: string, responseId: string, index: number): string =>
  `${prefix}_${responseId.slice(responsePrefix.length)}_${index}`

export const toResponseId = (uuid: string): string => responsePrefix + uuid

function parseItemId(id: string): { readonly responseId: string; readonly index: number } {
  const [, uuid = '', index = ''] = /^[a-z]+_([^_]+)_(\d+)$/.exec(id) ?? []
  return { responseId: responsePrefix + uuid, index: Number(index) }
}
