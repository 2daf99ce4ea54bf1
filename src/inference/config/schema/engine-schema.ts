/** The `engine` section as a schema: the kind of engine and the keys of that kind. */

import { registerSecret } from '../../../foundation/secrets.ts'
import { annotate, z } from '../../schema/schema.ts'
import { findUnknownPlaceholder, placeholders } from '../command-placeholders.ts'
import {
  addFormatIssue,
  addRule,
  createTextSchema,
  type Environment,
  integer,
  listOf,
  numberAbove,
  numberFrom,
  section,
} from './field-schemas.ts'
import { Secret } from '../secret.ts'

export const engineKinds = ['llama', 'openai', 'process', 'echo'] as const
export type EngineKind = (typeof engineKinds)[number]

export function engineSection(env: Environment) {
  return annotate(
    z.discriminatedUnion('kind', [
      llamaEngine(env),
      openAiEngine(env),
      processEngine(env),
      echoEngine(),
    ]),
    { expected: 'keys and values', isPrivate: true },
  ).describe('The engine that generates text, and its own keys.')
}

/** The keys of each engine, for messages about a key of the wrong engine. */
export function engineKeys(): Readonly<Record<EngineKind, readonly string[]>> {
  const [llama, openai, process, echo] = engineSection({}).def.options
  const keysOf = (engine: { readonly shape: object }): string[] => Object.keys(engine.shape)
  return {
    llama: keysOf(llama),
    openai: keysOf(openai),
    process: keysOf(process),
    echo: keysOf(echo),
  }
}

const concurrency = () => integer(1, 65_536).default(64).describe('Requests at a time.')

function llamaEngine(env: Environment) {
  return section({
    kind: z.literal('llama').default('llama').describe('llama.cpp in a process of its own.'),
    threads: integer(1, 1024).optional().describe('CPU threads. Default: the free cores.'),
    gpu: annotate(z.literal(['auto', false]), { expected: 'one of auto, false' })
      .default('auto')
      .describe('Whether a GPU is used if there is one.'),
    flash_attention: annotate(z.literal(['auto', true, false]), {
      expected: 'one of auto, true, false',
    })
      .default('auto')
      .describe('Faster with many clients, slower with long chats. Default on a CPU: false.'),
    sequences: integer(1, 256).default(16).describe('Requests at a time.'),
    batch_size: integer(1, 65_536).default(512).describe('Tokens of a prompt that one step reads.'),
    hung_seconds: numberAbove(0, 86_400)
      .default(60)
      .describe('Silence after which the process is replaced.'),
    cache_dir: createTextSchema(env)().optional().describe('Folder of downloaded models.'),
  }).describe('The embedded engine; needs the package node-llama-cpp.')
}

function openAiEngine(env: Environment) {
  return section({
    kind: z.literal('openai').describe('An OpenAI-compatible server that runs already.'),
    base_url: baseUrl(env).describe('Address of the server, such as http://localhost:8000/v1.'),
    api_key: createTextSchema(env)({ isPrivate: true })
      .transform((key) => new Secret(key))
      .optional()
      .describe('Key of the server. Prefer `${env:NAME}`.'),
    max_concurrency: concurrency(),
    paths: paths(env),
  }).describe('A server that runs already.')
}

/** Paths that are passed on to the server behind the engine; paths of this server are refused. */
function paths(env: Environment) {
  const about = { pattern: /^(?:\/[\w-][\w.-]*)+$/, expected: 'a path such as /v1/embeddings' }
  const path = createTextSchema(env)({ ...about, maxLength: 256 }).transform((text, context) => {
    if (servedPaths.test(text)) addRule(context, `expected another path, ${text} is served here`)
    return text
  })
  return listOf(path, { max: 64, expected: about.expected })
    .optional()
    .describe(`Paths that are passed on to the server. Default: ${defaultPaths.join(', ')}.`)
}

/** Paths that are passed on by default. */
export const defaultPaths = ['/v1/embeddings', '/v1/responses', '/v1/rerank'] as const

/** Paths of this server, except `/tokenize`, which may be passed on instead. */
const servedPaths =
  /^\/(?:v1\/(?:chat\/)?completions|(?:v1\/models|health)(?:\/.*)?|generate|metrics|openapi\.json)$/

/** A web address without credentials; a trailing `/` is removed. */
function baseUrl(env: Environment) {
  const expected = 'an address that begins with http:// or https://'
  const address = createTextSchema(env)({ isPrivate: true, expected })
  return address.transform((text, context) => {
    const url = URL.parse(text)
    if (url === null || !/^https?:$/.test(url.protocol)) {
      addFormatIssue(context, text)
    } else if (url.username !== '' || url.password !== '') {
      addRule(context, 'expected an address without a password; put it into api_key')
    }
    return text.replace(/\/+$/, '')
  })
}

function processEngine(env: Environment) {
  const text = createTextSchema(env)
  const variableName = annotate(z.string().regex(/^(?!__proto__$)[A-Za-z_]\w*$/), {
    expected: 'the name of a variable',
  })
  return section({
    kind: z.literal('process').describe('Starts an OpenAI-compatible server for each worker.'),
    command: command(env).describe(
      `Program and arguments, without a shell: ${placeholders.join(' ')}.`,
    ),
    env: annotate(z.record(variableName, variable(env)), {
      expected: 'keys and values',
      isPrivate: true,
    })
      .optional()
      .describe('Variables added to the server’s environment.'),
    start_timeout_seconds: numberAbove(0, 86_400)
      .default(600)
      .describe('How long the server may take until it is healthy.'),
    health_path: text({ pattern: /^\/\S*$/, expected: 'a path that begins with /' })
      .default('/health')
      .describe('Path that answers with status 200 when the server is ready.'),
    max_concurrency: concurrency(),
    cores: integer(1, 65_536)
      .default(1)
      .describe('Cores that each server has on a node of an allocation.'),
    paths: paths(env),
  }).describe('Servers that are started and supervised.')
}

/** A string is split at blanks before variables are expanded, so that a value stays one word. */
function command(env: Environment) {
  const argument = createTextSchema(env)({ isPrivate: true, expected: 'a program or argument' })
  const list = z.array(argument).max(1000)
  const line = z.string().transform((text) => text.split(/\s+/).filter((word) => word !== ''))
  const words = z.union([line.pipe(list), list]).transform((all, context) => {
    if (all.length === 0) addFormatIssue(context, '')
    else if (context.issues.length === 0) checkPlaceholders(all, context)
    return all
  })
  return annotate(words, {
    expected: 'a program or argument',
    format: 'a program and its arguments',
    isPrivate: true,
  })
}

/** Requires `{port}`, because the server must be told the port on which it is reached. */
function checkPlaceholders(words: readonly string[], context: z.core.$RefinementCtx): void {
  const unknown = words.map(findUnknownPlaceholder).find((problem) => problem !== undefined)
  if (unknown !== undefined) addRule(context, unknown.message)
  else if (!words.some((word) => word.includes('{port}'))) {
    addRule(context, 'expected {port}, the port where the server must listen')
  }
}

/** Variables that hold paths and names; masking their values would make messages unreadable. */
const publicName =
  /^(?:USER|LOGNAME|HOSTNAME|LANG|SHELL|PWD|HOME|TMPDIR|\w*(?:PATH|_DIR|_HOME|_ROOT))$/

/**
 * A variable of the server's environment. A value from this process's environment is probably a
 * secret, and the server may print it; so it is masked, alone and as a part of the whole value.
 */
function variable(env: Environment) {
  const written = z.string().transform((text) => {
    const names = [...text.matchAll(/\$\{env:(\w+)\}/g)].map(([, name = '']) => name)
    const secrets = names.filter((name) => !publicName.test(name)).map((name) => env[name] ?? '')
    const whole = text.replaceAll(/\$\{env:(\w+)\}/g, (_, name: string) => env[name] ?? '')
    if (secrets.length > 0) {
      for (const secret of [whole, ...secrets]) if (secret !== '') registerSecret(secret)
    }
    return text
  })
  const value = createTextSchema(env)({ isPrivate: true })
  return annotate(written.pipe(value), { expected: 'a non-empty text', isPrivate: true })
}

function echoEngine() {
  const latency = numberFrom(0, 3_600_000)
  return section({
    kind: z.literal('echo').describe('Repeats the prompt; for tests and benchmarks.'),
    latency_ms: latency.default(0).describe('Simulated time of a batch.'),
    latency_per_prompt_ms: latency.default(0).describe('Simulated time of each prompt in it.'),
  }).describe('A deterministic engine without a model.')
}
