/** The `required` section: the model, and the token that fetches it. */

import { errnoOf, messageOf } from '../../foundation/errors.ts'
import { integer, type ReadContext, readSection, text } from './fields.ts'
import { sharedRanges } from './overrides.ts'
import type { EngineConfig, InferenceConfig, InferenceOverrides } from './inference-config.ts'
import type { MapNode } from './tree.ts'
import { Secret } from './secret.ts'

/** What a configuration may ask of the disk. */
export interface ConfigFiles {
  exists(path: string): boolean
  /** The content of a token file, trimmed; throws where there is none. */
  readToken(path: string): string
}

export interface ResolveContext extends ReadContext {
  readonly overrides: InferenceOverrides
  readonly files: ConfigFiles
}

const spec = {
  model_name: text({ maxLength: 4096 }),
  hf_token: text({ isPrivate: true, pattern: /^\S+$/, expected: 'a token without blanks' }),
  token_file: text(),
  tp_size: integer(sharedRanges.tpSize.min, sharedRanges.tpSize.max),
}

/** A hub model needs a token only where we fetch it ourselves: with the llama engine. */
export function readRequired(
  node: MapNode,
  context: ResolveContext,
  engine: EngineConfig,
): Pick<InferenceConfig, 'modelName' | 'hubToken' | 'tpSize'> {
  const { problems, overrides, files } = context
  const { values, has, placeOf } = readSection(spec, node, { ...context, path: 'required' })
  const modelName = overrides.modelName ?? values.model_name ?? ''
  if (overrides.modelName === undefined && !has('model_name')) {
    problems.add(node.place, 'required.model_name: missing; set it, or the option modelName')
  }
  let token = values.hf_token
  if (has('hf_token') && has('token_file')) {
    problems.add(
      placeOf('token_file'),
      'required.token_file: hf_token is set too; keep one of them',
    )
  } else if (values.token_file !== undefined) {
    const read = readToken(files, values.token_file)
    token = read.token
    if (read.reason !== undefined) {
      problems.add(placeOf('token_file'), `required.token_file: cannot be used (${read.reason})`)
    }
  }
  const isHub = modelName !== '' && !looksLocal(modelName) && !files.exists(modelName)
  if (engine.kind === 'llama' && isHub && !has('hf_token') && !has('token_file')) {
    const ways = 'set it, or token_file, or name a local file'
    problems.add(node.place, `required.hf_token: needed to download the model; ${ways}`)
  }
  const hubToken = token === undefined ? null : new Secret(token)
  return { modelName, hubToken, tpSize: overrides.tpSize ?? values.tp_size ?? 1 }
}

function readToken(files: ConfigFiles, path: string): { token?: string; reason?: string } {
  try {
    const token = files.readToken(path)
    return /^\S+$/.test(token) ? { token } : { reason: 'it does not hold one token' }
  } catch (error) {
    const errno = errnoOf(error)
    return { reason: /^E[A-Z]+$/.test(errno) ? errno : messageOf(error) }
  }
}

const looksLocal = (name: string): boolean => /^(?:\.{0,2}\/|~)|\.gguf$/i.test(name)
