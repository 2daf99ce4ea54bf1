/** Loads a configuration: reads the file, checks it by its schema and completes it. */

import { basename } from 'node:path'
import { ValueError } from '../../foundation/errors.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import { ConfigProblems } from './config-problems.ts'
import type { Environment } from './schema/field-schemas.ts'
import { type ConfigFiles, readConfigFile, tokenFilesBeside, warnOfReaders } from './files.ts'
import type { InferenceConfig, InferenceOverrides } from './inference-config.ts'
import { resolveOverrides } from './overrides.ts'
import { resolveConfig } from './resolve.ts'
import { parseYamlTree } from './yaml-tree.ts'

/** Reads, checks and completes a file. Overrides take precedence over it, and it over defaults. */
export async function loadInferenceConfig(
  path: string,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
): Promise<InferenceConfig> {
  const checked = resolveOverrides(overrides)
  const { text, mode } = await readConfigFile(path)
  const files = tokenFilesBeside(path, log)
  const config = parseInferenceConfig(text, {
    file: basename(path),
    env: process.env,
    overrides: checked,
    files,
  })
  const { engine, hubToken } = config
  const secrets = [hubToken, engine.kind === 'openai' ? engine.apiKey : null]
  const holdsSecret = secrets.some((secret) => secret !== null && text.includes(secret.reveal()))
  if (holdsSecret) warnOfReaders(log, path, mode & 0o004)
  return config
}

export interface ParseOptions {
  /** The file's name, for messages. */
  readonly file: string
  /** For `${env:NAME}`. */
  readonly env: Environment
  readonly overrides?: InferenceOverrides
  /** Default: no file exists. */
  readonly files?: ConfigFiles
}

/** Checks and completes a text. One `ValueError` lists all problems, with line and column. */
export function parseInferenceConfig(text: string, options: ParseOptions): InferenceConfig {
  const { file, env, files = noFiles, overrides = {} } = options
  const problems = new ConfigProblems(file)
  const root = parseYamlTree(text, problems)
  return resolveConfig(root, { problems, env, files, overrides: resolveOverrides(overrides) })
}

const noFiles: ConfigFiles = {
  exists: () => false,
  readToken() {
    throw new ValueError('there are no files')
  },
}
