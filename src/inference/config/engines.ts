/** The `engine` section: which engine, and that engine's own keys. */

import { maskSecrets, registerSecret } from '../../foundation/secrets.ts'
import {
  type Field,
  integer,
  isNothing,
  listOf,
  mapOf,
  number,
  oneOf,
  type Reader,
  readSection,
  text,
  wrong,
} from './fields.ts'
import type { EngineConfig } from './inference-config.ts'
import type { ConfigNode, MapNode } from './tree.ts'
import { Secret, withMaskedValues } from './secret.ts'

export const engineKinds = ['llama', 'openai', 'process', 'echo'] as const
type EngineKind = (typeof engineKinds)[number]

const isKind = oneOf(...engineKinds)
const concurrency = integer(1, 65_536)
const latency = number({ min: 0, max: 3_600_000 })

/** A web address without a name and password in it, and without a `/` at its end. */
const baseUrl: Reader<string> = (node, field) => {
  const address = text({ isPrivate: true, expected: 'an http(s) address' })(node, field)
  if (address === undefined) return undefined
  const url = URL.parse(address)
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return wrong(node, field, 'an http(s) address', true)
  }
  if (url.username !== '' || url.password !== '') {
    return wrong(node, field, 'an address without a password; api_key is the place for it', true)
  }
  return address.replace(/\/+$/, '')
}

const argument = text({ isPrivate: true, expected: 'a program or argument' })

/** Program and arguments; blanks divide a string as it is written, and no shell sees it. */
const command: Reader<readonly string[]> = (node, field) => {
  const words = listOf(argument)(divided(node), field)
  if (words?.length === 0) return wrong(node, field, 'a program and its arguments', true)
  return words
}

function divided(node: ConfigNode): ConfigNode {
  if (node.kind !== 'scalar' || typeof node.value !== 'string') return node
  const words = node.value.split(/\s+/).filter((word) => word !== '')
  return { kind: 'list', items: words.map((word) => ({ ...node, value: word })), place: node.place }
}

/** Places and names, as nobody hides them; masked, they would be missing in every message. */
const openName =
  /^(?:USER|LOGNAME|HOSTNAME|LANG|SHELL|PWD|HOME|TMPDIR|\w*(?:PATH|_DIR|_HOME|_ROOT))$/

/**
 * A server may print what it was given. What was fetched from the environment instead of being
 * written here is most likely a secret, alone and as part of the value.
 */
const variable: Reader<string> = (node, field) => {
  const value = text({ isPrivate: true })(node, field)
  if (value === undefined || node.kind !== 'scalar') return value
  const names = [...String(node.value).matchAll(/\$\{env:(\w+)\}/g)].map(([, name = '']) => name)
  const secrets = names.filter((name) => !openName.test(name)).map((name) => field.env[name] ?? '')
  if (secrets.length > 0) for (const secret of [value, ...secrets]) registerSecret(secret)
  return value
}

const specs = {
  llama: {
    kind: isKind,
    threads: integer(1, 1024),
    gpu: oneOf<'auto' | false>('auto', false),
    sequences: integer(1, 256),
    batch_size: integer(1, 65_536),
    cache_dir: text(),
  },
  openai: {
    kind: isKind,
    base_url: baseUrl,
    api_key: text({ isPrivate: true }),
    max_concurrency: concurrency,
  },
  process: {
    kind: isKind,
    command,
    env: mapOf(/^(?!__proto__$)[A-Za-z_]\w*$/, 'the name of a variable', variable),
    start_timeout_seconds: number({ above: 0, max: 86_400 }),
    health_path: text({ pattern: /^\/\S*$/, expected: 'a path that begins with /' }),
    max_concurrency: concurrency,
  },
  echo: { kind: isKind, latency_ms: latency, latency_per_prompt_ms: latency },
}

/** The engine's settings; where a problem was noted they only fill the place. */
export function readEngine(node: MapNode, field: Field): EngineConfig {
  const given = node.entries.find(({ key }) => key === 'kind')?.value
  if (given === undefined || isNothing(given)) return readers.llama(node, field)
  const kind = isKind(given, { ...field, path: `${field.path}.kind` })
  return kind === undefined ? noEngine : readers[kind](node, field)
}

const noEngine: EngineConfig = { kind: 'echo', latencyMs: 0, latencyPerPromptMs: 0 }

/** Says whose key it is, when it is one of another engine. */
const explainFor =
  (kind: EngineKind) =>
  (key: string): string | undefined => {
    const owner = engineKinds.find((other) => Object.hasOwn(specs[other], key))
    return owner === undefined ? undefined : `a key of the ${owner} engine, the kind is ${kind}`
  }

const readers: Record<EngineKind, (node: MapNode, field: Field) => EngineConfig> = {
  llama(node, field) {
    const { values } = readSection(specs.llama, node, field, explainFor('llama'))
    return {
      kind: 'llama',
      threads: values.threads ?? null,
      gpu: values.gpu ?? 'auto',
      sequences: values.sequences ?? 16,
      batchSize: values.batch_size ?? 512,
      cacheDir: values.cache_dir ?? null,
    }
  },
  openai(node, field) {
    const { values, has } = readSection(specs.openai, node, field, explainFor('openai'))
    if (!has('base_url')) field.problems.add(node.place, 'engine.base_url: missing')
    return {
      kind: 'openai',
      baseUrl: values.base_url ?? '',
      apiKey: values.api_key === undefined ? null : new Secret(values.api_key),
      maxConcurrency: values.max_concurrency ?? 64,
    }
  },
  process(node, field) {
    const { values, has } = readSection(specs.process, node, field, explainFor('process'))
    if (!has('command')) field.problems.add(node.place, 'engine.command: missing')
    return {
      kind: 'process',
      command: values.command ?? [],
      env: withMaskedValues(Object.fromEntries(values.env ?? [])),
      startTimeoutSeconds: values.start_timeout_seconds ?? 600,
      healthPath: values.health_path ?? '/health',
      maxConcurrency: values.max_concurrency ?? 64,
    }
  },
  echo(node, field) {
    const { values } = readSection(specs.echo, node, field, explainFor('echo'))
    return {
      kind: 'echo',
      latencyMs: values.latency_ms ?? 0,
      latencyPerPromptMs: values.latency_per_prompt_ms ?? 0,
    }
  },
}

/** Once all secrets are known: every user of the machine can read the arguments of a process. */
export function refuseSecretsIn(engine: EngineConfig, node: MapNode, field: Field): void {
  if (engine.kind !== 'process') return
  if (engine.command.every((word) => maskSecrets(word) === word)) return
  const { place } = node.entries.find(({ key }) => key === 'command') ?? node
  field.problems.add(place, 'engine.command: holds a secret; put it into env')
}

/** Requests that one worker works on at a time. */
export function slotsOf(engine: EngineConfig, maxBatchSize: number): number {
  if (engine.kind === 'llama') return Math.min(engine.sequences, maxBatchSize)
  return engine.kind === 'echo' ? maxBatchSize : Math.min(engine.maxConcurrency, maxBatchSize)
}
