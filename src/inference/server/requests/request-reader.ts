/** Turns the JSON bodies that one server receives into checked requests. */

import { Checker } from '../../../schema/problems.ts'
import type { z } from '../../../schema/schema.ts'
import {
  type CompletionRequest,
  ignoredFields,
  type RequestRules,
  servedModel,
  type TextRequest,
  toChatRequest,
  toCompletionRequest,
  toGenerateRequest,
} from './text-request.ts'
import { invalidRequest, missingField, wrongType } from './invalid-request.ts'
import { createRequestSchemas, type RequestSchemas } from './request-schema.ts'

/** One function for each kind of body; all of them throw `HttpError`. */
export interface RequestReader {
  readonly rules: RequestRules
  readonly schemas: RequestSchemas
  readonly readChat: (body: unknown) => TextRequest
  readonly readCompletion: (body: unknown) => CompletionRequest
  readonly readGenerate: (body: unknown) => TextRequest
  /** The text whose tokens are asked for. */
  readonly readTokenize: (body: unknown) => string
}

/** Compiles the schemas once: a request only runs the checks. */
export function createRequestReader(rules: RequestRules): RequestReader {
  const schemas = createRequestSchemas(rules)
  return {
    rules,
    schemas,
    readChat: readerOf(schemas.ChatCompletionRequest, rules, toChatRequest),
    readCompletion: readerOf(schemas.CompletionRequest, rules, toCompletionRequest),
    readGenerate: readerOf(schemas.GenerateRequest, rules, toGenerateRequest),
    readTokenize: readerOf(schemas.TokenizeRequest, rules, toTokenizeText),
  }
}

type Convert<Body, Request> = (
  body: Body,
  rules: RequestRules,
  ignored: readonly string[],
) => Request

function readerOf<S extends z.ZodObject, Request>(
  schema: S,
  rules: RequestRules,
  convert: Convert<z.input<S>, Request>,
): (body: unknown) => Request {
  const checker = new Checker(schema)
  const known = new Set(Object.keys(schema.shape))
  return (body) => {
    if (checker.isValid(body)) {
      return convert(body, rules, ignoredFields(body, known, rules.isStrict))
    }
    const [first] = checker.problemsIn(body)
    if (first === undefined) throw new TypeError('the compiled check and the schema disagree')
    throw invalidRequest(first, body)
  }
}

function toTokenizeText(
  body: z.infer<RequestSchemas['TokenizeRequest']>,
  rules: RequestRules,
): string {
  servedModel(body.model, rules)
  const text = body.content ?? body.prompt
  if (typeof text === 'string') return text
  throw text === undefined ? missingField('prompt') : wrongType('prompt', 'a string', text)
}
