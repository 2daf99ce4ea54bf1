/**
 * Packages of OpenTelemetry that the export needs, loaded by its first use: they take most of the
 * CPU time of the start of telemetry, and most sessions export nothing.
 */

import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import type * as transformer from '@opentelemetry/otlp-transformer'
import type * as resources from '@opentelemetry/resources'

const require = createRequire(import.meta.url)

/**
 * Not by `import`, which gives a promise: `exportAsOtlp()` returns a string. It is the copy that
 * `import` loads, and that an application which uses OpenTelemetry has already.
 */
function load(name: string): unknown {
  try {
    return require(fileURLToPath(import.meta.resolve(name)))
  } catch {
    // An `import` of the application may be loading that copy at this moment, and Node cannot wait
    // for it here (ERR_REQUIRE_ESM_RACE_CONDITION). The CommonJS copy does the same.
    return require(name)
  }
}

export const loadResources = (): typeof resources =>
  load('@opentelemetry/resources') as typeof resources

export const loadTransformer = (): typeof transformer =>
  load('@opentelemetry/otlp-transformer') as typeof transformer
