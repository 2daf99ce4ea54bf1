/** The limits of an inference server: their defaults and their validation. */

import {
  expectBoolean,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectOrigin,
  invalid,
} from '../../foundation/options.ts'
import { defaultHttpLimits, type HttpLimits } from '../../runtime/http/http-server.ts'

/** How large requests and streams may be, and which fields are refused. */
export interface ServerLimits extends HttpLimits {
  /** The maximum size of a request's body in bytes. Default 1 MiB. */
  readonly bodyBytes: number
  /** The maximum size of a chat request's body in bytes. Default 4 MiB. */
  readonly chatBodyBytes: number
  /** Generation pauses when a stream has this many unread bytes. Default 256 KiB. */
  readonly streamBufferBytes: number
  /** The maximum number of prompts in one request. Default 1024. */
  readonly maxPrompts: number
  /** Whether request fields without an effect are refused instead of ignored. Default `false`. */
  readonly isStrict: boolean
}

const defaults: ServerLimits = {
  ...defaultHttpLimits,
  bodyBytes: 1_048_576,
  chatBodyBytes: 4_194_304,
  streamBufferBytes: 262_144,
  maxPrompts: 1024,
  isStrict: false,
}

/** Validates the limits and fills in the defaults. Throws `ValueError`. */
export function resolveServerLimits(given: Partial<ServerLimits> = {}): ServerLimits {
  expectKnownKeys('ServerLimits', given, Object.keys(defaults), 'limits.')
  const limits = { ...defaults, ...given }
  for (const [name, value] of Object.entries(limits)) {
    const field = `limits.${name}`
    if (name.endsWith('Seconds')) expectNumber(field, value, { min: 0, max: 86_400 })
    else if (name === 'isStrict') expectBoolean(field, value)
    else if (name.startsWith('allowed')) expectStrings(field, value)
    else if (name === 'depth') expectInteger(field, value, { min: 1, max: 1000 })
    else expectInteger(field, value, { min: 1, max: 2 ** 31 - 1 })
  }
  for (const [at, origin] of limits.allowedOrigins.entries()) {
    expectOrigin(`limits.allowedOrigins[${at}]`, origin)
  }
  return limits
}

function expectStrings(field: string, value: unknown): void {
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return
  throw invalid(field, 'a list of strings', value)
}
