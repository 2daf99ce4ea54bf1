/** Who may import whom, as data, and the rules that hold the code to it. */

import { codeIn, importsOf, isAt, type SourceFile } from './source-file.ts'

/** The port that all backends implement. */
const backendPort = 'backends/backend.ts'

/**
 * What each folder of `src` may import besides itself and `node:`: a folder, one file of it, or
 * `type <folder>` for its types alone. Folders that are not listed may not exist.
 */
export const floorPlan: Readonly<Record<string, readonly string[]>> = {
  foundation: [],
  events: ['foundation'],
  tasks: ['foundation'],
  checkpoint: ['foundation', 'events'],
  view: ['foundation', 'events'],
  telemetry: ['foundation', 'events', 'checkpoint', 'view'],
  backends: ['foundation', 'events', 'tasks'],
  session: [
    'foundation',
    'events',
    'tasks',
    'checkpoint',
    'view',
    'telemetry',
    backendPort,
    'backends/job-note.ts',
    'backends/sampling/poller.ts',
  ],
  inference: ['foundation', 'events', 'tasks', backendPort, 'telemetry/otel-prometheus.ts'],
  cluster: ['foundation', 'events', 'tasks', 'backends'],
  hpc: ['foundation', 'events', 'tasks', 'backends', 'cluster'],
  workflow: ['foundation', 'events', 'tasks', 'checkpoint', backendPort, 'session'],
  report: ['foundation', 'events', 'checkpoint', 'view'],
  dashboard: ['foundation', 'events', 'checkpoint', 'view'],
  cli: ['foundation', 'tasks/define-task.ts', 'report', 'dashboard', 'checkpoint', 'view'],
  testing: [
    'foundation',
    'events',
    'tasks',
    'checkpoint',
    'view',
    backendPort,
    'inference/engine.ts',
    'cli/output.ts',
  ],
}

/** Folders that nobody may import: they stand outside the house. */
const outermost = new Set(['cli', 'testing'])

const isDoor = (path: string): boolean => path === 'index.ts' || /^[^/]+\/index\.ts$/.test(path)
const folderOf = (path: string): string => path.split('/')[0] ?? ''
const inSource = (path: string): string => path.replace(/^src\//, '')

/** Imports between folders that the floor plan does not allow. */
export function importsOffThePlan(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) => {
    const path = inSource(file.path)
    const folder = folderOf(path)
    if (path !== 'index.ts' && floorPlan[folder] === undefined) {
      return [`${file.path}:1: "${folder}" is not on the floor plan`]
    }
    return importsOf(file).flatMap(({ target, isType, line }) => {
      if (target === null) return []
      const reason = target.startsWith('src/')
        ? refusal(path, inSource(target), isType)
        : 'leaves src'
      return reason === undefined ? [] : [`${file.path}:${line}: import of ${target} ${reason}`]
    })
  })
}

/** Why the file `from` may not import the file `to`, if it may not. Both are paths inside `src`. */
function refusal(from: string, to: string, isType: boolean): string | undefined {
  const [folder, target] = [folderOf(from), folderOf(to)]
  if (isDoor(to)) return folder === 'cli' ? undefined : 'goes through a door: name the file'
  if (folder === target) return undefined
  if (outermost.has(target) && folder !== 'testing') return `goes outside: to ${target}`
  if (isDoor(from) && folder !== 'testing') return undefined
  const allowed = floorPlan[folder] ?? []
  const isAllowed = allowed.some((entry) => {
    if (entry === `type ${target}`) return isType
    return entry === target || entry === to
  })
  return isAllowed ? undefined : `is not allowed in ${folder} (may import: ${allowed.join(', ')})`
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

/** Examples that import more than a user of the package can. */
export function examplesBehindTheDoor(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'examples').flatMap((file) =>
    importsOf(file)
      .filter(({ specifier, target }) => {
        const isSibling = target !== null && isAt(target, 'examples/')
        return !isSibling && !/^(?:node:|tutti(?:\/|$)|@opentelemetry\/)/.test(specifier)
      })
      .map(({ specifier, line }) => `${file.path}:${line}: ${specifier} is not for examples`),
  )
}
