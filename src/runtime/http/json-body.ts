/** Reads a request's body up to a limit and parses it as strict JSON. */

import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { HttpError } from './http-error.ts'

/** Throws if the headers announce a body that is too large or not plain JSON. */
export function checkBodyHead(
  { headers }: IncomingMessage,
  limitBytes: number,
  isAnyTypeAccepted: boolean,
): void {
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity') {
    throw unsupportedMediaError('Send the body without Content-Encoding.')
  }
  if (!isAnyTypeAccepted && !jsonType.test(headers['content-type'] ?? '')) {
    throw unsupportedMediaError('Send the body as Content-Type: application/json.')
  }
  if (Number(headers['content-length'] ?? 0) > limitBytes) throw tooLargeError(limitBytes)
}

/** Whether the client sends its body only after `100 Continue`. */
export const waitsForContinue = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  continueExpectation.test(headers.expect ?? '')

/**
 * Reads a whole body. Rejects if the body exceeds the limit, the client disconnects, or `signal` is
 * aborted.
 */
export function readBody(
  request: IncomingMessage,
  limitBytes: number,
  signal: AbortSignal,
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
      stop(tooLargeError(limitBytes))
    }
    const stop = (reason: unknown): void => {
      request.off('data', take)
      signal.removeEventListener('abort', abort)
      chunks.length = 0
      reject(reason)
    }
    const abort = (): void => stop(signal.reason)
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort)
    request.on('data', take)
    request.once('end', () => {
      signal.removeEventListener('abort', abort)
      const [first] = chunks
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, size))
    })
    request.once('error', stop)
  })
}

/** The same expression as in Node's HTTP server. */
const continueExpectation = /(?:^|\W)100-continue(?:$|\W)/i
const jsonType = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?$/i

const unsupportedMediaError = (message: string): HttpError =>
  new HttpError(415, message, { code: 'unsupported_media_type' })

const tooLargeError = (limitBytes: number): HttpError =>
  new HttpError(413, `The body is larger than ${limitBytes} bytes.`, {
    code: 'request_too_large',
    param: 'body',
  })

/** The 400 error that it throws names the position of the problem, but has no text of the body. */
export function parseJson(bytes: Buffer, maxDepth: number): unknown {
  if (bytes.length === 0) throw invalidBodyError('The body is empty: expected a JSON object.')
  if (!isUtf8(bytes)) throw malformedError('not UTF-8 text', firstInvalidByte(bytes))
  return new JsonParser(bytes.toString('utf8'), maxDepth).parse()
}

/** Keys that could change a prototype when the body is copied to another object. */
const forbiddenKeys: ReadonlySet<string> = new Set(['__proto__', 'constructor'])

const numberPattern = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y
const escapePattern = /["\\/bfnrt]|u[0-9a-fA-F]{4}/y
const literals: Readonly<Record<string, unknown>> = { true: true, false: false, null: null }
const literalPattern = /true|false|null/y
const [quote, comma, colon, openBrace, closeBrace] = [0x22, 0x2c, 0x3a, 0x7b, 0x7d]
const [openBracket, closeBracket, backslash] = [0x5b, 0x5d, 0x5c]

/** Replaces `JSON.parse`, which accepts repeated keys and is slow for deeply nested bodies. */
class JsonParser {
  readonly #text: string
  readonly #maxDepth: number
  #at = 0

  constructor(text: string, maxDepth: number) {
    this.#text = text
    this.#maxDepth = maxDepth
  }

  parse(): unknown {
    const value = this.#value(this.#maxDepth)
    this.#skipSpace()
    if (this.#at < this.#text.length) this.#fail()
    return value
  }

  #value(levels: number): unknown {
    const code = this.#skipSpace()
    if (code === quote) return this.#string()
    if (code === openBrace || code === openBracket) {
      if (levels === 0) {
        const where = `${this.#maxDepth} levels (position ${this.#at})`
        throw new HttpError(400, `The body is nested deeper than ${where}.`, {
          code: 'json_too_deep',
          param: 'body',
        })
      }
      return code === openBrace ? this.#object(levels - 1) : this.#array(levels - 1)
    }
    if (code === 0x2d || (code >= 0x30 && code <= 0x39)) return this.#number()
    return literals[this.#match(literalPattern)]
  }

  #match(pattern: RegExp): string {
    const start = this.#at
    pattern.lastIndex = start
    if (!pattern.test(this.#text)) this.#fail()
    this.#at = pattern.lastIndex
    return this.#text.slice(start, this.#at)
  }

  #array(levels: number): unknown[] {
    const items: unknown[] = []
    if (this.#isEmpty(closeBracket)) return items
    do items.push(this.#value(levels))
    while (this.#hasNext(closeBracket))
    return items
  }

  #object(levels: number): Record<string, unknown> {
    const fields: Record<string, unknown> = {}
    if (this.#isEmpty(closeBrace)) return fields
    do {
      const key = this.#key(fields)
      fields[key] = this.#value(levels)
    } while (this.#hasNext(closeBrace))
    return fields
  }

  /** Reads the opening bracket. If the closing bracket follows, reads it too and returns `true`. */
  #isEmpty(closing: number): boolean {
    this.#at++
    if (this.#skipSpace() !== closing) return false
    this.#at++
    return true
  }

  /** Reads a comma and returns `true`, or reads the closing bracket and returns `false`. */
  #hasNext(closing: number): boolean {
    const code = this.#skipSpace()
    if (code !== comma && code !== closing) this.#fail()
    this.#at++
    return code === comma
  }

  #key(fields: object): string {
    if (this.#skipSpace() !== quote) this.#fail()
    const start = this.#at
    const key = this.#string()
    if (forbiddenKeys.has(key)) throw malformedError(`the key '${key}' is not allowed`, start)
    if (Object.hasOwn(fields, key)) throw malformedError('a key comes twice', start)
    if (this.#skipSpace() !== colon) this.#fail()
    this.#at++
    return key
  }

  #string(): string {
    const text = this.#text
    const start = this.#at
    let hasEscape = false
    for (let at = start + 1; at < text.length; at++) {
      const code = text.charCodeAt(at)
      if (code === quote) {
        this.#at = at + 1
        if (!hasEscape) return text.slice(start + 1, at)
        return JSON.parse(text.slice(start, at + 1)) as string
      }
      if (code < 0x20) this.#fail(at)
      if (code !== backslash) continue
      hasEscape = true
      escapePattern.lastIndex = at + 1
      if (!escapePattern.test(text)) this.#fail(at + 1)
      at = escapePattern.lastIndex - 1
    }
    return this.#fail(text.length)
  }

  #number(): number {
    const start = this.#at
    const value = Number(this.#match(numberPattern))
    if (!Number.isFinite(value)) throw malformedError('a number is out of range', start)
    return value
  }

  #skipSpace(): number {
    let code = this.#text.charCodeAt(this.#at)
    while (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) {
      code = this.#text.charCodeAt(++this.#at)
    }
    return code
  }

  #fail(at = this.#at): never {
    throw malformedError(at >= this.#text.length ? 'it ends too early' : 'unexpected character', at)
  }
}

const malformedError = (what: string, position: number): HttpError =>
  invalidBodyError(`The body is not valid JSON: ${what} at position ${position}.`)

const invalidBodyError = (message: string): HttpError =>
  new HttpError(400, message, { code: 'invalid_json', param: 'body' })

/** Returns the position of the first invalid bytes, which decode to U+FFFD but do not encode it. */
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
