/** The files that may name foreign libraries and the system's clocks, timers and streams. */

import {
  codeIn,
  dottedName,
  importsOf,
  isAt,
  parse,
  type SourceFile,
  type SyntaxNode,
  violation,
  walk,
} from './source-file.ts'

/** A name and the only places in `src` that may say it: a file, a folder with `/`, or a `*`. */
interface Permit {
  readonly names: readonly string[]
  readonly files: readonly string[]
}

const clock = 'src/foundation/clock.ts'
/** Pages run in a browser, where the clock of Node is missing. */
const pageClocks = ['src/dashboard/web/state/page-clock.ts', 'src/inference/web/page-clock.ts']

/** Packages, and modules of Node that only some may use. A name ending in `/` is a scope. */
const modulePermits: readonly Permit[] = [
  { names: ['@opentelemetry/'], files: ['src/telemetry/otel/'] },
  { names: ['koffi'], files: ['src/backends/local/programs/koffi-spawner.ts'] },
  { names: ['commander'], files: ['src/cli/program/'] },
  {
    names: ['node-llama-cpp'],
    files: ['src/inference/engines/llama/llama-cpp.ts', 'src/inference/engines/llama/evaluation/'],
  },
  { names: ['yaml'], files: ['src/inference/config/yaml-tree.ts'] },
  { names: ['zod'], files: ['src/inference/schema/schema.ts'] },
  {
    names: ['undici'],
    files: ['src/inference/engines/openai/upstream-link.ts', 'src/cli/bench/load.ts'],
  },
  {
    names: ['eventsource-parser'],
    files: [
      'src/inference/engines/openai/upstream-call.ts',
      'src/inference/web/server-api.ts',
      'src/cli/bench/load.ts',
    ],
  },
  { names: ['preact', '@preact/', 'uplot'], files: ['src/dashboard/web/', 'src/inference/web/'] },
  {
    names: ['re2js'],
    files: [
      'src/inference/guardrails/rule-patterns.ts',
      'src/dashboard/queries/tasks/query-language.ts',
    ],
  },
  { names: ['@nats-io/', 'msgpackr'], files: ['src/cluster/'] },
  {
    names: ['node:child_process'],
    files: [
      'src/backends/local/',
      'src/backends/sampling/',
      'src/runtime/',
      'src/cluster/owned-folder.ts',
      'src/hpc/',
      'src/inference/engines/',
      'src/inference/models/model-file.ts',
      'src/cli/script-child.ts',
      'src/cli/reading/report.ts',
    ],
  },
  { names: ['node:timers', 'node:timers/promises'], files: [clock] },
  { names: ['node:perf_hooks'], files: [clock, 'src/backends/sampling/loop-delay.ts'] },
]

/** Globals that read time, randomness or the process's own streams and handlers. */
const globalPermits: readonly Permit[] = [
  { names: ['Date.now', 'new Date()', 'performance.now'], files: [clock, ...pageClocks] },
  { names: ['process.hrtime'], files: [clock, 'src/backends/local/machine-time.ts'] },
  {
    names: ['setTimeout', 'setInterval', 'setImmediate'],
    files: [clock, 'src/testing/manual-clock.ts', ...pageClocks],
  },
  { names: ['Math.random'], files: [] },
  { names: ['process.emitWarning'], files: ['src/foundation/log.ts'] },
  {
    names: [
      'console',
      'process.exit',
      'process.on',
      'process.once',
      'process.addListener',
      'process.stdout',
      'process.stderr',
    ],
    files: [
      'src/cli/',
      'src/runtime/at-exit.ts',
      'src/session/close-on-signals.ts',
      'src/telemetry/record-program.ts',
      'src/telemetry/progress/follow-progress.ts',
      'src/runtime/child-program.ts',
      'src/backends/local/functions/worker-program.ts',
      // The stderr of a worker process is passed on.
      'src/backends/local/functions/process-link.ts',
      'src/backends/local/programs/launcher.ts',
      'src/inference/engines/llama/llama-program.ts',
      'src/runtime/server/guard.ts',
      'src/cluster/io/agent/agent-program.ts',
      'src/cluster/io/agent/presence/watcher-program.ts',
      'src/cluster/bundles/bundle-program.ts',
      'src/hpc/launch/check-program.ts',
      'src/hpc/agents/node-agent.ts',
    ],
  },
]

const regularFile = 'src/foundation/regular-file.ts'

/** Functions of `node:fs` that wait forever at a FIFO, and files that may import them. */
const fileReaderPermits: readonly Permit[] = [
  {
    names: ['readFile', 'readFileSync', 'createReadStream'],
    files: [
      regularFile,
      // Files of the system.
      'src/backends/local/programs/running-program.ts',
      'src/backends/sampling/cgroup.ts',
      'src/checkpoint/lock.ts',
      'src/cli/doctor.ts',
      'src/inference/engines/llama/evaluation/cpu-attention.ts',
      'src/runtime/process-group.ts',
      // Files that Node has loaded before, and of a folder that was just made.
      'src/cluster/bundles/',
      'src/inference/models/model-file.ts',
    ],
  },
  {
    names: ['open', 'openSync'],
    files: [
      regularFile,
      // Files of the system.
      'src/backends/local/programs/koffi-spawner.ts',
      'src/backends/sampling/open-file.ts',
      'src/runtime/supervised-child.ts',
      // Files that are written.
      'src/backends/local/programs/output-capture.ts',
      'src/checkpoint/compressed.ts',
      'src/checkpoint/files.ts',
      'src/checkpoint/repair.ts',
      'src/cli/reading/output-file.ts',
      'src/inference/models/gguf-writer.ts',
      'src/record/snapshot.ts',
      'src/telemetry/otel/otlp.ts',
    ],
  },
]

/** Imports of functions that read files by path, outside the file that refuses pipes. */
export function directReads(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) =>
    parse(file).module.staticImports.flatMap(({ moduleRequest, entries, start }) => {
      if (!/^node:fs(?:\/promises)?$/.test(moduleRequest.value)) return []
      return entries.flatMap(({ importName: { name } }) => {
        const permit = fileReaderPermits.find(({ names }) => names.includes(name ?? ''))
        if (permit?.files.every((pattern) => !isAt(file.path, pattern)) !== true) return []
        return [violation(file, start, `${name} of node:fs: use ${regularFile}`)]
      })
    }),
  )
}

/** Packages outside the file that may name them; without a permit, everywhere. */
export function foreignModules(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) =>
    importsOf(file).flatMap(({ specifier, target, line }) => {
      if (target !== null) return []
      const permit = modulePermits.find(({ names }) => names.some((name) => isIn(specifier, name)))
      if (permit === undefined && specifier.startsWith('node:')) return []
      const allowed = permit?.files ?? []
      if (allowed.some((pattern) => isAt(file.path, pattern))) return []
      return [`${file.path}:${line}: ${specifier} may be named in ${placesOf(allowed)}`]
    }),
  )
}

const isIn = (specifier: string, name: string): boolean =>
  specifier === name || specifier.startsWith(name.endsWith('/') ? name : `${name}/`)

/** Banned globals outside their file. */
export function bannedGlobals(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) => {
    const found: string[] = []
    walk(file, (node, parent, property) => {
      const name = referenceOf(node, parent, property)
      const permit = globalPermits.find(({ names }) => name !== undefined && names.includes(name))
      if (permit === undefined || permit.files.some((pattern) => isAt(file.path, pattern))) return
      found.push(violation(file, node.start, `${name} may be used in ${placesOf(permit.files)}`))
    })
    return found
  })
}

function referenceOf(
  node: SyntaxNode,
  parent: SyntaxNode | null,
  property: string,
): string | undefined {
  if (node.type === 'NewExpression') {
    const isEmpty = Array.isArray(node['arguments']) && node['arguments'].length === 0
    return dottedName(node['callee']) === 'Date' && isEmpty ? 'new Date()' : undefined
  }
  if (node.type === 'MemberExpression') return dottedName(node)
  if (node.type !== 'Identifier') return undefined
  const isOnlyAKey =
    (property === 'property' || property === 'key') && parent?.['computed'] !== true
  return isOnlyAKey ? undefined : dottedName(node)
}

const placesOf = (files: readonly string[]): string =>
  files.length === 0 ? 'no file' : `${files.join(', ')} only`
