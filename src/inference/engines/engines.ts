/** The list of engine kinds, and the types and schemas derived from the list. */

import { invalid } from '../../foundation/options.ts'
import { annotate, z } from '../schema/schema.ts'
import { type Environment, toCamelCase } from '../schema/config-fields.ts'
import type { Secret } from '../schema/secret.ts'
import { echoEngine } from './echo/echo-engine.ts'
import type { EngineDescriptor } from './engine-descriptor.ts'
import { llamaEngine } from './llama/llama-engine.ts'
import { openAiEngine } from './openai/openai-engine.ts'
import { processEngine } from './process/process-engine.ts'

const builtIn = [llamaEngine, openAiEngine, processEngine, echoEngine]

/** All kinds; the first is the default. */
export const engines: EngineDescriptor[] = [...builtIn]

type ConfigOf<Descriptor> = Descriptor extends EngineDescriptor<infer Config> ? Config : never

/** The settings of an engine (section `engine`), by kind. */
export type EngineConfig = ConfigOf<(typeof builtIn)[number]>

type OptionOf<Config> = Config extends EngineConfig
  ? Pick<Config, 'kind'> & {
      readonly [Key in keyof Omit<Config, 'kind'>]?: Config[Key] extends Secret | null
        ? string
        : Config[Key]
    }
  : never

/** An engine as an option: either only its kind, or the keys of its section in camelCase. */
export type EngineOption = EngineConfig['kind'] | OptionOf<EngineConfig>

export const engineKinds = (): string[] => engines.map(({ kind }) => kind)

/** Throws `ValueError` for an unknown kind, because callers may pass any configuration. */
export function findDescriptor(engine: { readonly kind: string }): EngineDescriptor {
  const found = engines.find(({ kind }) => kind === engine.kind)
  if (found !== undefined) return found
  throw invalid('engine.kind', `one of ${engineKinds().join(', ')}`, engine.kind)
}

export function engineSection(env: Environment) {
  const sections: unknown = engines.map((engine) => engine.section(env))
  const about = { expected: 'keys and values', isPrivate: true }
  return annotate(
    z.discriminatedUnion('kind', sections as [z.core.$ZodTypeDiscriminable]),
    about,
  ).describe('The engine that generates text, and its own keys.')
}

export const toEngineConfig = (section: unknown): EngineConfig =>
  Object.fromEntries(
    Object.entries(section as object).map(([key, value]) => [toCamelCase(key), value]),
  ) as unknown as EngineConfig
