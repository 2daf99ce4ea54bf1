/** From the tree of a configuration file to complete settings, section by section. */

import { readEngineOption } from './engine-option.ts'
import { readEngine, refuseSecretsIn, slotsOf } from './engines.ts'
import {
  type Field,
  isNothing,
  type ReadContext,
  type Reader,
  readSection,
  wrong,
} from './fields.ts'
import { readGuardrails } from './guardrails.ts'
import { readRequired, type ResolveContext } from './required.ts'
import { readBatching, readDynamicWorkers, readHardware, readLlm } from './sections.ts'
import type { InferenceConfig } from './inference-config.ts'
import { type ConfigNode, type MapNode, startOfFile } from './tree.ts'
import { Secret } from './secret.ts'

/** The settings, frozen deeply; or one error with all problems. */
export function resolveConfig(root: ConfigNode, context: ResolveContext): InferenceConfig {
  const { overrides } = context
  const sections = readSections(root, context)
  const fieldOf = (path: SectionName): Field => ({ ...context, path })
  const written = readEngine(sections.engine, fieldOf('engine'))
  const engine = readEngineOption(overrides.engine, written, context.env)
  const required = readRequired(sections.required, context, engine)
  refuseSecretsIn(engine, sections.engine, fieldOf('engine'))
  const { tpSize } = required
  const hardware = readHardware(sections.hardware, fieldOf('hardware'), overrides, tpSize)
  const batching = readBatching(sections.input_batching, fieldOf('input_batching'), overrides)
  const config: InferenceConfig = {
    ...required,
    hardware,
    llm: readLlm(sections.llm, fieldOf('llm')),
    batching,
    guardrails: readGuardrails(sections.guardrails, fieldOf('guardrails')),
    dynamicWorkers: readDynamicWorkers(
      sections.dynamic_workers,
      fieldOf('dynamic_workers'),
      hardware,
      slotsOf(engine, batching.maxBatchSize),
    ),
    engine,
  }
  context.problems.throwIfAny()
  return freezeDeeply(config)
}

/** A section as it stands: its own function reads what is in it. */
const asMap: Reader<MapNode> = (node, field) =>
  node.kind === 'map' ? node : wrong(node, field, 'keys and values', true)

const spec = {
  required: asMap,
  hardware: asMap,
  llm: asMap,
  input_batching: asMap,
  guardrails: asMap,
  dynamic_workers: asMap,
  engine: asMap,
}

type SectionName = keyof typeof spec

function readSections(root: ConfigNode, context: ReadContext): Record<SectionName, MapNode> {
  const { problems } = context
  if (root.kind !== 'map' && !isNothing(root)) {
    problems.add(root.place, 'expected sections, such as "required:"')
    problems.throwIfAny()
  }
  const entries = root.kind === 'map' ? root.entries : []
  const map: MapNode = { kind: 'map', entries, place: startOfFile }
  const { values } = readSection(spec, map, { ...context, path: '' })
  const sectionOf = (name: SectionName): MapNode => ({
    kind: 'map',
    entries: values[name]?.entries ?? [],
    place: entries.find(({ key }) => key === name)?.place ?? startOfFile,
  })
  return {
    required: sectionOf('required'),
    hardware: sectionOf('hardware'),
    llm: sectionOf('llm'),
    input_batching: sectionOf('input_batching'),
    guardrails: sectionOf('guardrails'),
    dynamic_workers: sectionOf('dynamic_workers'),
    engine: sectionOf('engine'),
  }
}

function freezeDeeply<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === 'object' && part !== null && !(part instanceof Secret)) freezeDeeply(part)
  }
  return Object.freeze(value)
}
