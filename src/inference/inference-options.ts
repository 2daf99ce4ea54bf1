/** The options of an inference backend and their validation. */

import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { ValueError } from '../foundation/errors.ts'
import { type Log, resolveLog } from '../foundation/log.ts'
import {
  definedFields,
  describe,
  expectBasePath,
  expectBoolean,
  expectInteger,
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectSecret,
  expectString,
  invalid,
} from '../foundation/options.ts'
import { loadInferenceConfig, readInferenceConfig } from './config/config.ts'
import { expectEngineOption, overrideNames, resolveOverrides } from './config/read-tree.ts'
import type {
  ConfigSections,
  InferenceConfig,
  InferenceOverrides,
} from './config/inference-config.ts'
import { expectListenAddress } from '../runtime/http/listening.ts'
import { expectTlsFiles, type TlsFiles } from '../runtime/http/tls.ts'
import type { EngineOption } from './engines/engines.ts'
import type { NodeServers } from '../runtime/server/node-servers.ts'
import type { CreateEngine } from './generation/inference-engine.ts'
import type { ServedRequest } from './server/server.ts'
import { resolveServerLimits, type ServerLimits } from './server/server-limits.ts'

/** The configuration file, values that override it, and the address of the server. */
export interface InferenceBackendOptions {
  /** The YAML file with the rest of the configuration. */
  readonly configFile: string
  /** A name on a model hub, or a local path. */
  readonly modelName: string
  /** The name of the backend. Default `inference`. */
  readonly name?: string
  /** The number of nodes. More than 1 requires `nodes` or an engine factory. Default 1. */
  readonly numNodes?: number
  /** The number of GPUs per node. Default 1. */
  readonly numGpus?: number
  /** The number of GPUs that share one model (tensor parallelism). Default 1. */
  readonly tpSize?: number
  /** The port of the HTTP server; 0 chooses a free one. Default 8000. */
  readonly port?: number
  /**
   * The index of the first node to use, so that several services can share an allocation. Default
   * 0.
   */
  readonly offset?: number
  /** Whether to serve over HTTP. Default `true`. With `false`, call `generate` instead. */
  readonly useService?: boolean
  /** The maximum number of requests in a batch. Default 1024. */
  readonly maxBatchSize?: number
  /**
   * How long a batch waits for more requests. Default 500. If this is given, the type of batching
   * is `fixed`, unless the file specifies a `type`.
   */
  readonly maxBatchWaitMs?: number
  /**
   * The host to listen on. A host other than loopback requires an `apiKey`. Default: 127.0.0.1, and
   * the loopback address that this machine's name resolves to.
   */
  readonly host?: string
  readonly apiKey?: string
  /**
   * A file with a line for each client: `name key [rpm=N] [tpm=N]`. The limits are requests and
   * tokens per minute. The file is read again when it changes.
   */
  readonly apiKeysFile?: string
  /** The first part of all paths of the server, such as `/llm`, for a proxy. Default none. */
  readonly basePath?: string
  /** The files of a certificate and its key, read again when they change. Default: HTTP. */
  readonly tls?: TlsFiles
  /** Called when a request over HTTP has ended. */
  readonly onRequest?: (request: ServedRequest) => void
  /** Whether the server has a page at `/` to chat with the model. Default `true`. */
  readonly page?: boolean
  /** Overrides the file's `engine`: a kind, a section with its keys, or an engine factory. */
  readonly engine?: EngineOption | CreateEngine
  /** The HPC backend whose nodes run the servers of the `process` engine. Default: this machine. */
  readonly nodes?: NodeServers
  /** Limits of the HTTP server. */
  readonly limits?: Partial<ServerLimits>
  /** Whether spans contain prompts and generated text. Default `false`. */
  readonly captureContent?: boolean
  /**
   * How many seconds an engine may report nothing about a request until the request fails. Default
   * 600.
   */
  readonly engineTimeoutSeconds?: number
  /** How many seconds `close` waits for running HTTP requests. Default 5. */
  readonly drainSeconds?: number
  readonly clock?: Clock
  readonly log?: Log
  /** Called with progress messages while engines start, for example while a model is loaded. */
  readonly onProgress?: (text: string) => void
  /** Aborts `initialize()`. Has no effect on an initialized backend; use `close()`. */
  readonly signal?: AbortSignal
}

/** The path of a YAML file, an object with its sections, or the result of `loadInferenceConfig`. */
export type ConfigOption = string | ConfigSections | InferenceConfig

/** The options of `fromConfig`. None is required, because the configuration contains all values. */
export type FromConfigOptions = Partial<Omit<InferenceBackendOptions, 'configFile'>>

export type ResolvedInferenceOptions = ReturnType<typeof resolveInferenceOptions>

const optionNames = [
  ...overrideNames,
  ...'configFile name port useService host apiKey apiKeysFile basePath page tls nodes limits'.split(
    ' ',
  ),
  ...'captureContent engineTimeoutSeconds drainSeconds clock log onProgress onRequest signal'.split(
    ' ',
  ),
]

export function resolveInferenceOptions(options: InferenceBackendOptions) {
  expectKnownKeys('InferenceBackend', expectObject('options', options), optionNames)
  const { port = 8000, apiKey, useService = true, engine } = options
  const host = options.host === undefined ? null : expectString('host', options.host)
  const { captureContent = false, engineTimeoutSeconds = 600, drainSeconds = 5 } = options
  expectBoolean('useService', useService)
  const key = apiKey === undefined ? null : expectSecret('apiKey', apiKey)
  const { apiKeysFile, basePath = '' } = options
  const keysFile = apiKeysFile === undefined ? null : expectString('apiKeysFile', apiKeysFile)
  const needsKey = key !== null || keysFile !== null
  if (useService) expectListenAddress({ host, port, needsKey })
  return {
    name: expectString('name', options.name ?? 'inference'),
    configFile: expectString('configFile', options.configFile),
    modelName: expectString('modelName', options.modelName),
    overrides: resolveOverrides(pickOverrides(options)),
    createEngine: typeof engine === 'function' ? engine : null,
    nodes:
      options.nodes === undefined
        ? null
        : expectMethods('nodes', options.nodes, ['reserveServers']),
    port: expectInteger('port', port, { min: 0, max: 65_535 }),
    host,
    apiKey: key,
    apiKeysFile: keysFile,
    basePath: expectBasePath('basePath', basePath),
    tls: options.tls === undefined ? null : expectTlsFiles('tls', options.tls),
    onRequest: options.onRequest ?? null,
    hasPage: expectBoolean('page', options.page ?? true),
    isService: useService,
    limits: expectLimits(options.limits),
    isContentCaptured: expectBoolean('captureContent', captureContent),
    engineTimeoutMs:
      expectNumber('engineTimeoutSeconds', engineTimeoutSeconds, { above: 0, max: 86_400 }) * 1000,
    drainMs: expectNumber('drainSeconds', drainSeconds, { min: 0, max: 86_400 }) * 1000,
    clock: expectMethods('clock', options.clock ?? systemClock, clockMethods),
    log: resolveLog(options.log),
    onProgress: options.onProgress ?? (() => {}),
    signal: options.signal ?? null,
  }
}

/** Loads the configuration for `fromConfig`. Options take precedence over the configuration. */
export async function loadConfigOption(
  source: ConfigOption,
  options: FromConfigOptions,
): Promise<InferenceConfig> {
  expectKnownKeys('InferenceBackend', expectObject('options', options), optionNames)
  const overrides = pickOverrides(options)
  if (typeof source === 'string' && source !== '') {
    return loadInferenceConfig(source, overrides, options.log)
  }
  if (typeof source !== 'object' || source === null || Array.isArray(source)) {
    throw invalid('config', 'the path of a file, or an object with its sections', source)
  }
  if (!('modelName' in source)) return readInferenceConfig(source, overrides, options.log)
  // An engine factory may be given, because it does not change the loaded configuration.
  const { engine, ...others } = overrides
  const changes = typeof engine === 'function' ? others : overrides
  const [field] = Object.keys(changes)
  if (field === undefined) return source
  throw new ValueError(`\`${field}\` comes too late for a configuration that was loaded`, {
    field,
    hint: `Give it to loadInferenceConfig: loadInferenceConfig(file, { ${field} }).`,
  })
}

function pickOverrides(options: FromConfigOptions): InferenceOverrides {
  const { engine } = options
  if (engine !== undefined && typeof engine !== 'function') expectEngineOption(engine, process.env)
  return definedFields(Object.fromEntries(overrideNames.map((name) => [name, options[name]])))
}

/** Validates the limits and returns them unchanged. The server fills in the defaults later. */
function expectLimits(limits: Partial<ServerLimits> = {}): Partial<ServerLimits> {
  expectObject('limits', limits)
  resolveServerLimits(limits)
  return limits
}

/** Validates the time-out of `generate` in seconds, which must be above 0 and at most a day. */
export function expectTimeout(value: unknown): number {
  if (typeof value === 'number' && value > 0 && value <= 86_400) return value
  const expected = '0 < s <= 86400'
  const usage = value === undefined ? '; call generate(prompts, timeout)' : ''
  throw new ValueError(`timeout: expected ${expected}, got ${timeoutText(value)}${usage}`, {
    code: 'RangeError',
    field: 'timeout',
    expected,
    got: value,
  })
}

function timeoutText(value: unknown): string {
  if (typeof value === 'number') return String(value)
  return typeof value === 'string' ? JSON.stringify(value.slice(0, 80)) : describe(value)
}
