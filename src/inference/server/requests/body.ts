/** Reads a request's body up to a limit, and parses it as strict JSON. */

import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { HttpError } from '../http-error.ts'

/** Refuses a body that is too large or not plain JSON, from the headers alone. */
export function checkBodyHead(request: IncomingMessage, limitBytes: number): void {
  const { headers } = request
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity') {
    throw unsupportedMedia('Send the body without Content-Encoding.')
  }
  if (!jsonType.test(headers['content-type'] ?? '')) {
    throw unsupportedMedia('Send the body as Content-Type: application/json.')
  }
  if (Number(headers['content-length'] ?? 0) > limitBytes) throw tooLarge(limitBytes)
}

/** Whether the client sends its body only after `100 Continue`. */
export const waitsForContinue = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  continueExpectation.test(headers.expect ?? '')

/**
 * Resolves with the whole body. Rejects with 413 at the first byte beyond the limit, with the
 * request's error when the client disconnects, and with the signal's reason when the signal is
 * aborted before the end of the body.
 */
export function readBody(
  request: IncomingMessage,
  limitBytes: number,
  signal?: AbortSignal,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    const take = (chunk: Buffer): void => {
      size += chunk.length
      if (size <= limitBytes) {
        chunks.push(chunk)
        return
      }
      stop(tooLarge(limitBytes))
    }
    const stop = (reason: unknown): void => {
      request.off('data', take)
      signal?.removeEventListener('abort', abort)
      chunks.length = 0
      reject(reason)
    }
    const abort = (): void => stop(signal?.reason)
    if (signal?.aborted === true) return abort()
    signal?.addEventListener('abort', abort)
    request.on('data', take)
    request.once('end', () => {
      signal?.removeEventListener('abort', abort)
      const [first] = chunks
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, size))
    })
    request.once('error', stop)
  })
}

/** The same expression as in Node's HTTP server. */
const continueExpectation = /(?:^|\W)100-continue(?:$|\W)/i
const jsonType = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?$/i

const unsupportedMedia = (message: string): HttpError =>
  new HttpError(415, message, { code: 'unsupported_media_type' })

const tooLarge = (limitBytes: number): HttpError =>
  new HttpError(413, `The body is larger than ${limitBytes} bytes.`, {
    code: 'request_too_large',
    param: 'body',
  })

/**
 * The parsed body, or an error with status 400, whose message has a position but no text of the
 * body. The depth is checked before `JSON.parse`, which blocks for seconds on a deeply nested body.
 */
export function parseJson(bytes: Buffer, maxDepth: number): unknown {
  if (bytes.length === 0) {
    throw new HttpError(400, 'The body is empty: expected a JSON object.', {
      code: 'invalid_json',
      param: 'body',
    })
  }
  if (!isUtf8(bytes)) throw malformed('not UTF-8 text', firstInvalidByte(bytes))
  const text = bytes.toString('utf8')
  new Scanner(text, maxDepth).scan()
  return JSON.parse(text)
}

/** Keys that can change the prototype of an object into which the body is copied. */
const forbiddenKeys: ReadonlySet<string> = new Set(['__proto__', 'constructor'])

const numberPattern = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y
const escapePattern = /["\\/bfnrt]|u[0-9a-fA-F]{4}/y
const literals: Readonly<Record<string, string>> = { t: 'true', f: 'false', n: 'null' }

/**
 * Checks the JSON grammar, and limits what the grammar allows: depth, repeated keys, forbidden keys
 * and numbers beyond a double. Iterative; stops at the first error.
 */
class Scanner {
  readonly #text: string
  readonly #maxDepth: number
  /** The open objects and arrays: a set of keys for an object, `null` for an array. */
  readonly #open: (Set<string> | null)[] = []
  #at = 0

  constructor(text: string, maxDepth: number) {
    this.#text = text
    this.#maxDepth = maxDepth
  }

  scan(): void {
    do {
      const isComplete = this.#value()
      if (isComplete) this.#afterValue()
    } while (this.#open.length > 0)
    this.#skipSpace()
    if (this.#at < this.#text.length) this.#fail()
  }

  /**
   * Reads a complete scalar, empty list or empty object; returns `false` after an opening bracket.
   */
  #value(): boolean {
    const code = this.#skipSpace()
    if (code === quote) {
      this.#string()
    } else if (code === 0x7b || code === 0x5b) {
      return this.#opening(code === 0x7b)
    } else if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
      this.#number()
    } else {
      const literal = literals[this.#text[this.#at] ?? '']
      if (literal === undefined || !this.#text.startsWith(literal, this.#at)) this.#fail()
      this.#at += literal.length
    }
    return true
  }

  #opening(isObject: boolean): boolean {
    if (this.#open.length === this.#maxDepth) {
      throw new HttpError(
        400,
        `The body is nested deeper than ${this.#maxDepth} levels (position ${this.#at}).`,
        { code: 'json_too_deep', param: 'body' },
      )
    }
    this.#at++
    if (this.#skipSpace() === (isObject ? 0x7d : 0x5d)) {
      this.#at++
      // An empty object or array is complete and was not pushed.
      return true
    }
    this.#open.push(isObject ? new Set() : null)
    if (isObject) this.#key()
    return false
  }

  /** Closes objects and arrays that end here, and reads the comma and key before the next value. */
  #afterValue(): void {
    while (this.#open.length > 0) {
      const isObject = this.#open.at(-1) !== null
      const code = this.#skipSpace()
      this.#at++
      if (code === 0x2c) {
        if (isObject) this.#key()
        return
      }
      if (code !== (isObject ? 0x7d : 0x5d)) this.#fail(this.#at - 1)
      this.#open.pop()
    }
  }

  #key(): void {
    if (this.#skipSpace() !== quote) this.#fail()
    const start = this.#at
    const hasEscape = this.#string()
    const spelled = this.#text.slice(start, this.#at)
    const key = hasEscape ? (JSON.parse(spelled) as string) : spelled.slice(1, -1)
    if (forbiddenKeys.has(key)) throw malformed(`the key '${key}' is not allowed`, start)
    const keys = this.#open.at(-1)
    if (keys?.has(key) === true) throw malformed('a key comes twice', start)
    keys?.add(key)
    if (this.#skipSpace() !== 0x3a) this.#fail()
    this.#at++
  }

  /** Reads a string; returns whether it has an escape. */
  #string(): boolean {
    const text = this.#text
    let hasEscape = false
    for (let at = this.#at + 1; at < text.length; at++) {
      const code = text.charCodeAt(at)
      if (code === quote) {
        this.#at = at + 1
        return hasEscape
      }
      if (code < 0x20) this.#fail(at)
      if (code !== 0x5c) continue
      hasEscape = true
      escapePattern.lastIndex = at + 1
      if (!escapePattern.test(text)) this.#fail(Math.min(at + 1, text.length))
      at = escapePattern.lastIndex - 1
    }
    return this.#fail(text.length)
  }

  #number(): void {
    numberPattern.lastIndex = this.#at
    if (!numberPattern.test(this.#text)) this.#fail()
    const spelled = this.#text.slice(this.#at, numberPattern.lastIndex)
    if (!Number.isFinite(Number(spelled))) throw malformed('a number is out of range', this.#at)
    this.#at += spelled.length
  }

  #skipSpace(): number {
    let code = this.#text.charCodeAt(this.#at)
    while (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) {
      code = this.#text.charCodeAt(++this.#at)
    }
    return code
  }

  #fail(at = this.#at): never {
    throw malformed(at >= this.#text.length ? 'it ends too early' : 'unexpected character', at)
  }
}

const quote = 0x22

function malformed(what: string, position: number): HttpError {
  return new HttpError(400, `The body is not valid JSON: ${what} at position ${position}.`, {
    code: 'invalid_json',
    param: 'body',
  })
}

/**
 * The position of the first byte that decodes to U+FFFD without being part of an encoded U+FFFD.
 */
function firstInvalidByte(bytes: Buffer): number {
  const text = bytes.toString('utf8')
  const replacement = Buffer.from('\ufffd')
  let offset = 0
  let from = 0
  for (let at = text.indexOf('\ufffd'); at >= 0; at = text.indexOf('\ufffd', at + 1)) {
    offset += Buffer.byteLength(text.slice(from, at))
    from = at
    if (!bytes.subarray(offset, offset + replacement.length).equals(replacement)) return offset
  }
  return bytes.length
}
