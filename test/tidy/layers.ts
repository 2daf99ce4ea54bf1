/** The table of allowed imports between layers, and the rules that enforce it. */

import { codeIn, importsOf, isAt, type SourceFile, violation, walk } from './source-file.ts'

/** The port that all backends implement. */
const backendPort = 'backends/backend.ts'

const base = ['foundation', 'events', 'tasks', 'checkpoint', 'views', 'runtime']

/**
 * The allowed imports of each folder of `src` besides itself and `node:`: a folder, or one file of
 * it.
 * Folders that are not listed may not exist.
 */
export const layers: Readonly<Record<string, readonly string[]>> = {
  foundation: [],
  events: ['foundation'],
  tasks: ['foundation'],
  checkpoint: ['foundation', 'events'],
  views: ['foundation', 'events', 'tasks/lifecycle.ts', 'tasks/resource-fit.ts'],
  runtime: ['foundation'],
  record: ['foundation', 'events', 'checkpoint', 'views'],
  telemetry: base,
  backends: base,
  core: [
    ...base,
    'telemetry',
    backendPort,
    'backends/captured-text.ts',
    'backends/job-tag.ts',
    'backends/sampling/loop-delay.ts',
    'backends/sampling/poller.ts',
  ],
  inference: [...base, backendPort, 'telemetry/metrics/prometheus-text.ts'],
  cluster: [...base, 'backends'],
  session: [...base, 'telemetry', backendPort, 'core'],
  hpc: [...base, 'backends', 'cluster'],
  workflow: [...base, 'telemetry', backendPort, 'backends/closure-runs.ts', 'core'],
  report: ['foundation', 'events', 'checkpoint', 'views', 'record'],
  dashboard: [
    'foundation',
    'events',
    'checkpoint',
    'views',
    'runtime',
    'record',
    'report/report.ts',
  ],
  cli: [
    'foundation',
    'events/measurement.ts',
    'events/vocabulary.ts',
    'events/library-events.ts',
    'events/resource-update.ts',
    'tasks/define-task.ts',
    'tasks/lifecycle.ts',
    'tasks/task-fields.ts',
    'backends/local/node-capacity.ts',
    'backends/sampling/cgroup.ts',
    'telemetry/progress/terminal.ts',
    'telemetry/progress/follow-progress.ts',
    'telemetry/otel/otlp.ts',
    'telemetry/metrics/metrics.ts',
    'telemetry/metrics/prometheus-text.ts',
    'inference/models/model-file.ts',
    'inference/models/gguf-file.ts',
    'inference/config/config.ts',
    'inference/config/config-tree.ts',
    'inference/engines/engines.ts',
    'inference/config/yaml-tree.ts',
    'report',
    'dashboard',
    'checkpoint',
    'views',
    'record',
    'core/resume/preview.ts',
    'cluster/agent-list.ts',
    'cluster/io/agent/agent-options.ts',
    'cluster/cluster-options.ts',
    'cluster/broker/nats-program.ts',
    'hpc',
  ],
  testing: [...base, backendPort, 'inference/generation/inference-engine.ts', 'cli/output.ts'],
}

/**
 * Tables of the same form for folders that are divided further. `.` stands for the files directly
 * in the folder. A row names sub-folders, or single files of the folder; a sub-folder that has no
 * row may not exist. Sub-folders stand below those that may import them; single files may be named
 * from anywhere.
 */
export const subLayers: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  inference: {
    guardrails: [
      'generation/inference-engine.ts',
      'generation/inference-errors.ts',
      'generation/pass-through.ts',
      'generation/fields/message-text.ts',
      'generation/text-generator.ts',
    ],
    schema: [],
    generation: ['guardrails', 'config/config-sections.ts'],
    engines: [
      'schema',
      'generation',
      'config/config-sections.ts',
      'inference-options.ts',
      'models/gguf-file.ts',
    ],
    config: ['schema', 'guardrails', 'engines'],
    pool: ['generation', 'config', 'models/gguf-file.ts'],
    server: ['schema', 'generation'],
    models: [],
    '.': ['schema', 'guardrails', 'config', 'generation', 'engines', 'server', 'pool'],
  },
  cluster: {
    broker: ['owned-folder.ts'],
    wire: ['broker/broker.ts'],
    bundles: ['broker/stored-objects.ts'],
    protocol: ['wire', 'broker/stored-objects.ts'],
    io: ['broker', 'wire', 'bundles', 'protocol', 'cluster-options.ts', 'owned-folder.ts'],
    '.': ['broker', 'wire', 'protocol', 'io'],
  },
  views: {
    panels: [
      'columns.ts',
      'lifecycle.ts',
      'panel.ts',
      'readable.ts',
      'series.ts',
      'stats.ts',
      'task-index.ts',
    ],
    bounds: ['panels', 'columns.ts', 'lifecycle.ts', 'panel.ts', 'stats.ts'],
    texts: [
      'panels',
      'bounds',
      'all-panels.ts',
      'columns.ts',
      'lifecycle.ts',
      'panel.ts',
      'readable.ts',
      'stats.ts',
      'task-index.ts',
      'tasks.ts',
      'turns.ts',
    ],
    moments: ['panels', 'bounds', 'all-panels.ts', 'columns.ts', 'lifecycle.ts', 'series.ts'],
    '.': ['panels', 'bounds'],
  },
  dashboard: {
    web: ['protocol.ts'],
    queries: ['protocol.ts'],
    fold: ['queries', 'protocol.ts'],
    sources: ['queries', 'fold', 'protocol.ts'],
    '.': ['sources'],
  },
  telemetry: {
    metrics: [],
    spans: ['metrics'],
    progress: [],
    otel: ['metrics', 'spans/live-span.ts', 'spans/span-mirror.ts'],
    '.': ['metrics', 'spans', 'otel'],
  },
}

/** Folders that no other folder may import: the entry points of users and tests. */
const outermost = new Set(['cli', 'testing'])

const isEntryPoint = (path: string): boolean =>
  path === 'index.ts' || /^[^/]+\/index\.ts$/.test(path)
const folderOf = (path: string): string => path.split('/')[0] ?? ''
const subFolderOf = (path: string): string => (path.includes('/') ? folderOf(path) : '.')
const inSource = (path: string): string => path.replace(/^src\//, '')

/** Imports between folders that the table of layers does not allow. */
export function importsAcrossLayers(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) => {
    const path = inSource(file.path)
    const folder = folderOf(path)
    if (path !== 'index.ts' && layers[folder] === undefined) {
      return [`${file.path}:1: "${folder}" is not in the table of layers`]
    }
    return importsOf(file).flatMap(({ target, line }) => {
      if (target === null) return []
      const reason = target.startsWith('src/') ? refusal(path, inSource(target)) : 'leaves src'
      return reason === undefined ? [] : [`${file.path}:${line}: import of ${target} ${reason}`]
    })
  })
}

/** Why the file `from` may not import the file `to`, if it may not. Both are paths inside `src`. */
function refusal(from: string, to: string): string | undefined {
  const [folder, target] = [folderOf(from), folderOf(to)]
  if (isEntryPoint(to))
    return folder === 'cli' ? undefined : 'goes through an entry point: name the file'
  if (folder === target) return refusalInside(folder, from, to)
  if (outermost.has(target) && folder !== 'testing') return `goes outside: to ${target}`
  if (isEntryPoint(from) && folder !== 'testing') return undefined
  const allowed = layers[folder] ?? []
  const isAllowed = allowed.includes(target) || allowed.includes(to)
  return isAllowed ? undefined : `is not allowed in ${folder} (may import: ${allowed.join(', ')})`
}

/** The same for two files of one folder, by the folder's own table if it has one. */
function refusalInside(folder: string, from: string, to: string): string | undefined {
  const table = subLayers[folder]
  if (table === undefined) return undefined
  const inFolder = (path: string): string => path.slice(folder.length + 1)
  const [subFolder, target] = [subFolderOf(inFolder(from)), subFolderOf(inFolder(to))]
  if (subFolder === target) return undefined
  const allowed = table[subFolder]
  if (allowed === undefined) return `comes from "${subFolder}", which has no row in ${folder}`
  const isAllowed = allowed.includes(target) || allowed.includes(inFolder(to))
  const row = allowed.join(', ')
  return isAllowed ? undefined : `is not allowed in ${folder}/${subFolder} (may import: ${row})`
}

/** Files of `src` that import each other in a ring, types included. */
export function importCycles(files: readonly SourceFile[]): string[] {
  const graph = new Map(
    codeIn(files, 'src').map((file) => [
      file.path,
      importsOf(file).flatMap(({ target }) => (target === null ? [] : [target])),
    ]),
  )
  const cycles: string[] = []
  const finished = new Set<string>()
  const trail: string[] = []
  const visit = (path: string): void => {
    if (finished.has(path)) return
    const at = trail.indexOf(path)
    if (at >= 0) {
      cycles.push(`${path}:1: cycle ${[...trail.slice(at), path].join(' → ')}`)
      return
    }
    trail.push(path)
    for (const target of graph.get(path) ?? []) visit(target)
    trail.pop()
    finished.add(path)
  }
  for (const path of graph.keys()) visit(path)
  return cycles
}

/** Backends see jobs as data, which may be copies: they look at no task, and at no identity. */
export function tasksAtBackends(files: readonly SourceFile[]): string[] {
  const backends = ['backends', 'cluster', 'hpc', 'inference'].map((folder) => `src/${folder}`)
  const pattern = /instanceof (?:ComputeTask|AITask|Task)\b|[!=]== (?:\w+\.)?defaultResources\b/g
  return codeIn(files, ...backends).flatMap((file) =>
    Array.from(file.text.matchAll(pattern), ({ 0: text, index }) =>
      violation(file, index, `"${text}": a copy of a job means the same as the original`),
    ),
  )
}

/** Examples that import more than a user of the package can. */
export function examplesOfPrivateFiles(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'examples').flatMap((file) =>
    importsOf(file)
      .filter(({ specifier, target }) => {
        const isSibling = target !== null && isAt(target, 'examples/')
        return !isSibling && !/^(?:node:|tutti(?:\/|$)|@opentelemetry\/)/.test(specifier)
      })
      .map(({ specifier, line }) => `${file.path}:${line}: ${specifier} is not for examples`),
  )
}

const impureImports = [
  'src/foundation/clock.ts',
  'src/foundation/promises.ts',
  'src/runtime/retry.ts',
  'src/cluster/broker/',
]
const impureNames = new Set([
  'AbortController',
  'Date',
  'FinalizationRegistry',
  'localeCompare',
  'performance',
  'Promise',
  'setImmediate',
  'setInterval',
  'setTimeout',
  'WeakRef',
])

/** Files of the cluster's decisions that wait, read a clock, or do I/O. */
export function impureDecisions(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src/cluster/protocol').flatMap((file) => {
    const found = importsOf(file).flatMap(({ specifier, target, isType, line }) => {
      const isImpure = impureImports.some((pattern) => isAt(target ?? '', pattern))
      const isRefused = !isType && (specifier.startsWith('node:') || isImpure)
      return isRefused ? [`${file.path}:${line}: import of ${specifier}: decisions are pure`] : []
    })
    walk(file, ({ type, start, async: isAsync, name }) => {
      const isImpure = type === 'AwaitExpression' || isAsync === true
      if (!isImpure && (type !== 'Identifier' || !impureNames.has(String(name)))) return
      found.push(violation(file, start, 'decisions of the cluster do not wait'))
    })
    return found
  })
}
