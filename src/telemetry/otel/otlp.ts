/**
 * Finished spans as OTLP JSON or protobuf, in chunks, because one string can hold only 700,000
 * spans.
 */

import { open, rename, rm } from 'node:fs/promises'
import type { Resource } from '@opentelemetry/resources'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import type { FinishedSpan } from '../../checkpoint/format.ts'
import { errnoOf, messageOf, TuttiError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { createResource, loadTransformer, toReadableSpan } from './otel.ts'

const spansPerChunk = 500
/** An approximate limit, which counts only the texts of attributes and annotations. */
const charactersPerChunk = 10_000_000
/** V8's maximum string length is 2^29 - 24 characters. */
const maxStringLength = 536_000_000
const jsonHead = '{"resourceSpans":['
const jsonTail = ']}'

/** The whole export as one string. If that is too long, throws an error that asks for a path. */
export function toOtlpString(
  spans: Iterable<FinishedSpan>,
  resource: Resource,
  maxLength = maxStringLength,
): string {
  const parts: string[] = []
  let length = jsonHead.length + jsonTail.length
  for (const part of encodeChunks(spans, resource)) {
    parts.push(part)
    length += part.length + 1
    if (length > maxLength) throw tooLargeError(maxLength)
  }
  return `${jsonHead}${parts.join(',')}${jsonTail}`
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
      // Uses `appendFile`, because `write` may write fewer bytes than given.
      await file.appendFile(jsonHead)
      let separator = ''
      for (const part of encodeChunks(spans, resource)) {
        await file.appendFile(separator + part)
        separator = ','
      }
      await file.appendFile(jsonTail)
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

/** Encodes the spans of a record in chunks, which form one JSON document or protobuf message. */
export async function* encodeSpans(
  batches: AsyncIterable<readonly FinishedSpan[]>,
  encoding: 'json' | 'protobuf',
): AsyncGenerator<string | Uint8Array> {
  const resource = createResource(undefined)
  const { ProtobufTraceSerializer } = loadTransformer()
  if (encoding === 'json') yield jsonHead
  let separator = ''
  for await (const batch of batches) {
    if (encoding === 'protobuf') {
      const spans = batch.map((span) => toReadableSpan(span, resource))
      yield ProtobufTraceSerializer.serializeRequest(spans) ?? new Uint8Array()
      continue
    }
    for (const part of encodeChunks(batch, resource)) {
      yield separator + part
      separator = ','
    }
  }
  if (encoding === 'json') yield `${jsonTail}\n`
}

/** Yields chunks. Each is one entry of `resourceSpans`, without the enclosing brackets. */
function* encodeChunks(spans: Iterable<FinishedSpan>, resource: Resource): Generator<string> {
  const { JsonTraceSerializer } = loadTransformer()
  const decoder = new TextDecoder()
  let batch: ReadableSpan[] = []
  let characters = 0
  const encode = (): string => {
    const bytes = JsonTraceSerializer.serializeRequest(batch) ?? new Uint8Array()
    batch = []
    characters = 0
    return decoder.decode(bytes).slice(jsonHead.length, -jsonTail.length)
  }
  for (const span of spans) {
    batch.push(toReadableSpan(span, resource))
    characters += countCharacters(span)
    if (batch.length === spansPerChunk || characters > charactersPerChunk) yield encode()
  }
  if (batch.length > 0) yield encode()
}

function countCharacters({ attributes, events }: FinishedSpan): number {
  let characters = 0
  for (const one of [attributes, ...events.map((event) => event.attributes)]) {
    for (const value of Object.values(one)) {
      if (typeof value === 'string') characters += value.length
    }
  }
  return characters
}

function tooLargeError(limit: number): TuttiError {
  return new TuttiError(`the OTLP export is longer than one string can be (${limit} characters)`, {
    code: 'OtlpTooLargeError',
    hint: 'Pass a path: exportAsOtlp(path) streams to a file.',
  })
}
