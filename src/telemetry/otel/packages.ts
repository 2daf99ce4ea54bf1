/**
 * OpenTelemetry packages that only the export needs, loaded on first use: loading them takes most
 * of the CPU time when telemetry starts, and most sessions export nothing.
 */

import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import type * as transformer from '@opentelemetry/otlp-transformer'
import type * as resources from '@opentelemetry/resources'

const require = createRequire(import.meta.url)

/**
 * Uses `require` because `exportAsOtlp()` is synchronous. It loads the same copy as `import` does,
 * which an application that uses OpenTelemetry has already loaded.
 */
function load(name: string): unknown {
  try {
    return require(fileURLToPath(import.meta.resolve(name)))
  } catch {
    // The application may be importing that copy at this moment, and Node cannot wait for it here
    // (ERR_REQUIRE_ESM_RACE_CONDITION). The CommonJS copy is equivalent.
    return require(name)
  }
}

export const loadResources = (): typeof resources =>
  load('@opentelemetry/resources') as typeof resources

export const loadTransformer = (): typeof transformer =>
  load('@opentelemetry/otlp-transformer') as typeof transformer
