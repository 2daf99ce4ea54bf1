/**
 * Finished spans as OTLP JSON, in chunks: a string can hold about 700,000 spans, a file any number.
 */

import { open, rename, rm } from 'node:fs/promises'
import type { Resource } from '@opentelemetry/resources'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import type { FinishedSpan } from '../../checkpoint/format.ts'
import { errnoOf, messageOf, TuttiError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { createResource, toReadableSpan } from './otel.ts'
import { loadTransformer } from './packages.ts'

const chunkSpans = 500
/** Approximate: counts only the texts of attributes and annotations. */
const chunkCharacters = 10_000_000
/** V8's maximum string length is 2^29 - 24 characters. */
const maxStringLength = 536_000_000
const head = '{"resourceSpans":['
const tail = ']}'

/** The whole export as one string. If that is too long, throws an error that asks for a path. */
export function toOtlpString(
  spans: Iterable<FinishedSpan>,
  resource: Resource,
  longest = maxStringLength,
): string {
  const parts: string[] = []
  let length = head.length + tail.length
  for (const part of chunks(spans, resource)) {
    parts.push(part)
    length += part.length + 1
    if (length > longest) throw tooLarge(longest)
  }
  return `${head}${parts.join(',')}${tail}`
}

/** Streams the export to a file, which appears only when it is complete. */
export async function writeOtlpFile(
  path: string,
  spans: Iterable<FinishedSpan>,
  resource: Resource,
): Promise<void> {
  const unfinished = `${path}.${newUuid()}.tmp`
  try {
    const file = await open(unfinished, 'wx')
    try {
      // `appendFile`, because `write` may write fewer bytes than given.
      await file.appendFile(head)
      let separator = ''
      for (const part of chunks(spans, resource)) {
        await file.appendFile(separator + part)
        separator = ','
      }
      await file.appendFile(tail)
    } finally {
      await file.close()
    }
    await rename(unfinished, path)
  } catch (error) {
    await rm(unfinished, { force: true }).catch(() => {})
    const errno = errnoOf(error)
    const isFolder = errno === 'EISDIR'
    const what = isFolder ? 'it is a folder' : messageOf(error)
    const hint = isFolder
      ? 'Name a file in it.'
      : `The folder must exist and be writable (${errno}).`
    throw new TuttiError(`cannot write the OTLP export to ${path}: ${what}`, {
      code: 'OtlpExportError',
      cause: error,
      ...(errno === 'unknown' ? {} : { hint }),
    })
  }
}

/**
 * The spans of a record as OTLP, in pieces: one JSON document, or one protobuf message, which is
 * the concatenation of its pieces.
 */
export async function* encodeSpans(
  batches: AsyncIterable<readonly FinishedSpan[]>,
  encoding: 'json' | 'protobuf',
): AsyncGenerator<string | Uint8Array> {
  const resource = createResource(undefined)
  const { ProtobufTraceSerializer } = loadTransformer()
  if (encoding === 'json') yield head
  let separator = ''
  for await (const batch of batches) {
    if (encoding === 'protobuf') {
      const spans = batch.map((span) => toReadableSpan(span, resource))
      yield ProtobufTraceSerializer.serializeRequest(spans) ?? new Uint8Array()
      continue
    }
    for (const part of chunks(batch, resource)) {
      yield separator + part
      separator = ','
    }
  }
  if (encoding === 'json') yield `${tail}\n`
}

/** Each chunk is one entry of `resourceSpans`, without the brackets around it. */
function* chunks(spans: Iterable<FinishedSpan>, resource: Resource): Generator<string> {
  const { JsonTraceSerializer } = loadTransformer()
  const decoder = new TextDecoder()
  let batch: ReadableSpan[] = []
  let characters = 0
  const encode = (): string => {
    const bytes = JsonTraceSerializer.serializeRequest(batch) ?? new Uint8Array()
    batch = []
    characters = 0
    return decoder.decode(bytes).slice(head.length, -tail.length)
  }
  for (const span of spans) {
    batch.push(toReadableSpan(span, resource))
    characters += charactersOf(span)
    if (batch.length === chunkSpans || characters > chunkCharacters) yield encode()
  }
  if (batch.length > 0) yield encode()
}

/** The number of characters in the texts that can be long: attributes and annotations. */
function charactersOf({ attributes, events }: FinishedSpan): number {
  let characters = 0
  for (const one of [attributes, ...events.map((event) => event.attributes)]) {
    for (const value of Object.values(one)) {
      if (typeof value === 'string') characters += value.length
    }
  }
  return characters
}

function tooLarge(limit: number): TuttiError {
  return new TuttiError(`the OTLP export is longer than one string can be (${limit} characters)`, {
    code: 'OtlpTooLargeError',
    hint: 'Pass a path: exportAsOtlp(path) streams to a file.',
  })
}
