/** The options of `tutti serve` for single keys of the configuration: `--llm.max-tokens 200`. */

import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ValueError } from '../foundation/errors.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import type { ConfigSettings } from '../inference/config/config.ts'
import { readKeyFile } from './program/server-model.ts'

interface KeySchema {
  readonly type?: string | readonly string[]
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly KeySchema[]
  readonly oneOf?: readonly KeySchema[]
  readonly description?: string
  readonly properties?: Readonly<Record<string, KeySchema>>
}

interface ConfigKey {
  readonly section: string
  readonly name: string
  /** The name of the option, such as `llm.max-tokens`. */
  readonly flag: string
  readonly description: string
  /** `before` is the value of an earlier use of the option. */
  readonly parse: (text: string, before: unknown) => unknown
}

/** Secrets are read from files, because every user of a machine can read command lines. */
const secretKeys: ReadonlySet<string> = new Set(['engine.api_key'])
/** Keys that have an option for a file instead: `--required.token-file`. */
const keysWithoutOption: ReadonlySet<string> = new Set(['required.hf_token'])

let keys: readonly ConfigKey[] | undefined

/** Returns all keys of the schema that is shipped with the package. */
export function listConfigKeys(): readonly ConfigKey[] {
  keys ??= Object.entries(readSchema().properties ?? {}).flatMap(([section, schema]) =>
    Object.entries(propertiesOf(schema))
      .filter(([name]) => !keysWithoutOption.has(`${section}.${name}`))
      .map(([name, key]) => toConfigKey(section, name, key)),
  )
  return keys
}

function readSchema(): KeySchema {
  const url = new URL('../../docs/config.schema.json', import.meta.url)
  return JSON.parse(readTextFileSync(fileURLToPath(url))) as KeySchema
}

/** Returns the keys of a section. The section `engine` has the keys of all engines. */
const propertiesOf = ({ properties = {}, oneOf = [] }: KeySchema): Record<string, KeySchema> =>
  Object.assign({}, properties, ...oneOf.map(propertiesOf)) as Record<string, KeySchema>

function toConfigKey(section: string, name: string, schema: KeySchema): ConfigKey {
  const isSecret = secretKeys.has(`${section}.${name}`)
  const flag = `${section}.${name}${isSecret ? '_file' : ''}`.replaceAll('_', '-')
  return {
    section,
    name,
    flag,
    description: schema.description ?? '',
    parse: (text, before) => {
      const value = isSecret ? readKeyFile(text, `--${flag}`) : parseValue(schema, text, flag)
      if (before === undefined) return value
      if (hasType(schema, 'array')) return [before, value].flat()
      throw new ValueError(`--${flag}: it was given twice`, { field: flag })
    },
  }
}

const hasType = ({ type = [], anyOf = [] }: KeySchema, wanted: string): boolean =>
  [type].flat().includes(wanted) || anyOf.some((one) => hasType(one, wanted))

const number = /^[-+]?[\d.]+(?:e[-+]?\d+)?$/i

/**
 * Converts text to a type that the schema allows. Returns other text unchanged. The check of the
 * whole configuration then reports it together with all other problems.
 */
function parseValue(schema: KeySchema, text: string, flag: string): unknown {
  const takes = (type: string): boolean => hasType(schema, type)
  if (number.test(text) && (takes('integer') || takes('number'))) return Number(text)
  const isTrue = text === 'true'
  const takesBoolean = takes('boolean') || schema.enum?.includes(isTrue) === true
  if (takesBoolean && (isTrue || text === 'false')) return isTrue
  if (!takes('object') || !text.startsWith('{')) return text
  try {
    return JSON.parse(text)
  } catch {
    throw new ValueError(`--${flag}: expected JSON, got ${text}`, { field: flag })
  }
}

/**
 * Keys whose values are paths. On the command line, a relative path starts at the working folder.
 */
const pathKey = /_(?:file|dir)$/

/** Converts parsed options to settings. The options are in camel case, as in `llm.maxTokens`. */
export function readSettings(options: Readonly<Record<string, unknown>>): ConfigSettings {
  const settings: Record<string, Record<string, unknown>> = {}
  for (const { section, name, flag } of listConfigKeys()) {
    const value = options[flag.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase())]
    if (value === undefined) continue
    const isPath = pathKey.test(name) && typeof value === 'string'
    const sectionSettings = (settings[section] ??= {})
    sectionSettings[name] = isPath ? resolve(value) : value
  }
  return settings
}
