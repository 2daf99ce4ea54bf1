/** `tutti serve`: runs an inference backend as an HTTP server until a signal stops it. */

import { ValueError } from '../foundation/errors.ts'
import { newUuid } from '../foundation/ids.ts'
import { definedFields, isLoopbackHost } from '../foundation/options.ts'
import {
  type ConfigSettings,
  loadConfigWithSettings,
  readInferenceConfig,
} from '../inference/config/config.ts'
import {
  InferenceBackend,
  type InferenceConfig,
  type ServedRequest,
  type TlsFiles,
} from '../inference/index.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { exitCodes, stopOnSignal } from './exit.ts'
import type { Output } from './output.ts'
import { findModel, readApiKey, toBase } from './program/server-model.ts'
import { readSettings } from './serve-settings.ts'

export interface ServeOptions {
  readonly config?: string
  readonly engine?: string
  readonly baseUrl?: string
  readonly port?: number
  readonly host?: string
  readonly apiKeyFile?: string
  readonly apiKeys?: string
  readonly basePath?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly logRequests?: boolean
  readonly logContents?: boolean
  readonly allowHost?: readonly string[]
  readonly allowOrigin?: readonly string[]
  readonly page?: boolean
  readonly dashboard?: boolean
}

/** The maximum time that requests in progress may take after the signal. */
const drainSeconds = 30

/**
 * Runs the server until a signal stops it. Then resolves with 0, because a signal is the usual way
 * to stop a server.
 */
export async function serve(
  model: string | undefined,
  options: ServeOptions,
  output: Output,
): Promise<number> {
  const key = chooseKey(options)
  const stop = stopOnSignal(output.closed)
  try {
    const config = await readConfig(model, options, stop.signal)
    await using backend = await InferenceBackend.fromConfig(config, {
      drainSeconds,
      limits: { allowedHosts: options.allowHost ?? [], allowedOrigins: options.allowOrigin ?? [] },
      onProgress: (text) => output.progress([text]),
      signal: stop.signal,
      ...definedFields({ host: options.host, port: options.port, apiKey: key?.value }),
      ...definedFields({
        apiKeysFile: options.apiKeys,
        basePath: options.basePath,
        page: options.page,
      }),
      ...definedFields({ tls: readTls(options), onRequest: createRequestLog(options, output) }),
    })
    await using _ = options.dashboard === true ? await openDashboard(backend, output) : null
    const models = [config, ...config.models.map((one) => one.config)]
    const names = models.flatMap(({ servedNames }) => servedNames)
    printEndpoint(backend, { key, names }, options, output)
    const name = await stop.received
    if (name !== null)
      output.problem(`${name}: finishing requests in progress; a second signal stops immediately`)
  } catch (error) {
    if (!stop.signal.aborted) throw error
  } finally {
    stop.release()
  }
  if (!output.closed.aborted) output.problem('stopped')
  return exitCodes.ok
}

/** Reads the configuration from the file and from the command line, which takes precedence. */
async function readConfig(
  model: string | undefined,
  options: ServeOptions,
  signal: AbortSignal,
): Promise<InferenceConfig> {
  const { required = {}, engine: engineKeys = {}, ...others } = readSettings({ ...options })
  const { model_name: named, ...otherRequired } = required
  const { engine: kind, baseUrl } = options
  const engine = { ...definedFields({ kind, base_url: baseUrl }), ...engineKeys }
  const settings = { ...others, required: otherRequired, engine }
  if (model !== undefined && named !== undefined) {
    const details = { code: 'UsageError', field: 'model' }
    throw new ValueError('model: given as an argument and as --required.model-name', details)
  }
  if (model !== undefined && /\.ya?ml$/i.test(model)) {
    const details = { code: 'UsageError', field: 'model' }
    throw new ValueError(`model: ${model} is a configuration; write --config ${model}`, details)
  }
  const isNamed = model !== undefined || named !== undefined || options.config !== undefined
  const modelName =
    model ?? named ?? (isNamed ? undefined : await findUpstreamModel(engine, signal))
  const overrides = definedFields({ modelName: modelName as string | undefined })
  if (options.config === undefined) return readInferenceConfig({}, overrides, undefined, settings)
  return loadConfigWithSettings(options.config, settings, overrides)
}

/** Asks the server behind the engine for its first model. */
function findUpstreamModel(engine: ConfigSettings[string], signal: AbortSignal): Promise<string> {
  const { kind, base_url: address, api_key: key } = engine
  if (kind !== 'openai' || typeof address !== 'string') {
    const ways = 'a file or a name, --config FILE, or --engine openai --base-url URL'
    const details = { code: 'UsageError', field: 'model' }
    throw new ValueError(`model: nothing names a model; give ${ways}`, details)
  }
  return findModel(toBase(address, '--base-url'), typeof key === 'string' ? key : null, signal)
}

async function openDashboard(backend: InferenceBackend, output: Output): Promise<AsyncDisposable> {
  // Imported only here, so that servers without a dashboard start fast.
  const { openServeDashboard } = await import('./dashboard/serve-dashboard.ts')
  return await openServeDashboard(backend, output)
}

interface ApiKey {
  readonly value: string
  readonly isGenerated: boolean
}

/** Without a configured key, a server that other hosts can reach gets a generated one. */
function chooseKey({ apiKeyFile, apiKeys, host }: ServeOptions): ApiKey | null {
  const given = readApiKey(apiKeyFile)
  if (given !== null) return { value: given, isGenerated: false }
  if (host === undefined || isLoopbackHost(host) || apiKeys !== undefined) return null
  return { value: `tutti-${newUuid()}`, isGenerated: true }
}

function readTls({ tlsCert: certFile, tlsKey: keyFile }: ServeOptions): TlsFiles | undefined {
  if (certFile === undefined && keyFile === undefined) return undefined
  if (certFile !== undefined && keyFile !== undefined) return { certFile, keyFile }
  const [given, missing] = keyFile === undefined ? ['cert', 'key'] : ['key', 'cert']
  const details = { code: 'UsageError', field: `tls-${missing}` }
  throw new ValueError(`--tls-${given} needs --tls-${missing}`, details)
}

/**
 * Returns a function that prints a line to stderr for each request; `undefined` if none is wanted.
 */
function createRequestLog(
  { logRequests = false, logContents = false }: ServeOptions,
  output: Output,
): ((request: ServedRequest) => void) | undefined {
  if (!logRequests && !logContents) return undefined
  return (request) => {
    const { time, body, answers, ...head } = request
    const { status, method, path, seconds, key, promptTokens, completionTokens, requestId } = head
    const at = new Date(time * 1000).toISOString()
    const content = logContents ? { body, answers } : {}
    if (output.form === 'json') {
      const tokens = { prompt_tokens: promptTokens, completion_tokens: completionTokens }
      const fields = { time: at, request_id: requestId, key, method, path, status, seconds }
      const line = JSON.stringify({ request: { ...fields, ...tokens, ...content } })
      void output.write(`${maskSecrets(line)}\n`, 'stderr')
      return
    }
    const duration = `${seconds.toFixed(3)}s${key === null ? '' : ` key=${key}`}`
    const use = `${duration} tokens=${promptTokens}+${completionTokens} ${requestId}`
    const line = `${at} ${status} ${method} ${path} ${use}`
    output.problem(maskSecrets(logContents ? `${line} ${JSON.stringify(content)}` : line))
  }
}

function printEndpoint(
  backend: InferenceBackend,
  { key, names }: { readonly key: ApiKey | null; readonly names: readonly string[] },
  { apiKeys, page = true }: ServeOptions,
  output: Output,
): void {
  const { endpoint, model, workers } = backend
  const shown = key?.isGenerated === true ? key.value : null
  const needsKey = key !== null || apiKeys !== undefined
  // The key is printed even in quiet form, because nobody could use the server without it.
  if (shown !== null && output.form === 'quiet') output.problem(`key ${shown}`)
  const clientKey = needsKey ? (shown ?? '<your key>') : 'none'
  const ollamaHeaders = needsKey ? `, headers: { 'x-api-key': '${clientKey}' }` : ''
  const header = !needsKey ? [] : [`-H 'Authorization: Bearer ${clientKey}'`]
  const type = "-H 'Content-Type: application/json'"
  const body = `-d '{"messages":[{"role":"user","content":"Once upon a time"}]}'`
  const facts = { endpoint, model, models: names, workers }
  output.result({ ...facts, ...(shown === null ? {} : { api_key: shown }) }, [
    `serving   ${model} with ${workers} worker${workers === 1 ? '' : 's'}`,
    `models    ${names.join(', ')}`,
    `endpoint  ${endpoint}  (OpenAI-compatible: ${endpoint}/v1)`,
    ...(shown === null ? [] : [`key       ${shown}`]),
    ...(page ? [`page      ${endpoint}/`] : []),
    `openai    new OpenAI({ baseURL: '${endpoint}/v1', apiKey: '${clientKey}' })`,
    `anthropic new Anthropic({ baseURL: '${endpoint}', apiKey: '${clientKey}' })`,
    `ollama    new Ollama({ host: '${endpoint}'${ollamaHeaders} })`,
    ...commandLines([`try       curl ${endpoint}/v1/chat/completions`, ...header, type, body]),
    'stop      Ctrl-C',
  ])
}

/** Writes one option per line, because the command is wider than a terminal. */
const commandLines = (parts: readonly string[]): readonly string[] =>
  parts.map((part, at) => {
    const end = at < parts.length - 1 ? ' \\' : ''
    return `${at === 0 ? '' : ' '.repeat(12)}${part}${end}`
  })
