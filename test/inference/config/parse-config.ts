/** Parses a configuration without files, for tests that need only its text. */

import {
  type ConfigContext,
  parseInferenceConfig as parse,
} from '../../../src/inference/config/config.ts'
import type { InferenceConfig } from '../../../src/inference/config/inference-config.ts'
import { resolveOverrides } from '../../../src/inference/config/read-tree.ts'

interface ParseOptions extends Partial<ConfigContext> {
  readonly file: string
}

export function parseInferenceConfig(text: string, options: ParseOptions): InferenceConfig {
  const { file, env = {}, files = noFiles, overrides = {} } = options
  return parse(text, { file, env, files, overrides: resolveOverrides(overrides) })
}

const noFiles = {
  exists: () => false,
  resolve: (path: string) => path,
  readToken(): string {
    throw new Error('there are no files')
  },
  warn() {},
}
