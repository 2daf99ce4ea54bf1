/** Decides which tasks an agent may run. The rules also apply to senders that have the token. */

import { lstatSync, realpathSync } from 'node:fs'
import { basename, dirname, join, matchesGlob, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { candidatesIn, ProgramLookup } from '../../../backends/local/programs/program-lookup.ts'
import type { ProgramSpec, TaskSpec } from '../../../tasks/spec.ts'
import { refuseByKind, rulesHint } from '../../wire/agent-rules.ts'
import type { AgentRules, NotAllowed } from '../../wire/messages.ts'

export interface RuledAgent {
  readonly name: string
  /** The only folder in which programs may write output files if `allow` is set. */
  readonly folder: string
  /** The environment variables that tasks may set or remove if `allow` is set. */
  readonly allowEnv: readonly string[]
  /** Returns the path of a bundled module in its project; `null` for a file of this node. */
  projectPath(file: string): string | null
}

/** Returns why a task is forbidden, or `null`. What an allowed program does is not checked. */
export function refuseByRules(
  rules: AgentRules,
  agent: RuledAgent,
  spec: TaskSpec,
): NotAllowed | null {
  const { name } = agent
  const { allow } = rules
  const byKind = refuseByKind(name, rules, spec)
  if (byKind !== null || allow === null) return byKind
  const paths = findPaths(spec, agent)
  if (!paths.some((path) => allow.some((glob) => matchesGlob(path, glob)))) {
    const [path = spec.executable] = paths
    const isShell = spec.kind === 'program' && spec.shell
    const why = isShell ? ' with `shell: true`, which can run any program' : ''
    return notAllowed(`agent "${name}" does not allow ${path}${why}`)
  }
  if (spec.kind !== 'program') return null
  const variable = Object.keys(spec.env ?? {}).find((one) => !agent.allowEnv.includes(one))
  if (variable !== undefined) {
    const hint = 'Set it in the environment of the agent, or start the agent with --allow-env.'
    return notAllowed(`agent "${name}" does not allow tasks to set ${variable}`, hint)
  }
  const output = outputPaths(spec).find((file) => !isInFolder(file, agent.folder))
  if (output === undefined) return null
  const hint = 'Without `captureStdio` the task has the beginning and the end of its output.'
  return notAllowed(`agent "${name}" does not allow output to be written to ${output}`, hint)
}

function outputPaths({ captureStdio, workDir, cwd }: ProgramSpec): string[] {
  const files = [captureStdio?.stdout, captureStdio?.stderr].filter((file) => file !== undefined)
  return files.map((file) => resolve(workDir ?? '.', cwd ?? '.', file))
}

/** Resolves symbolic links. The file need not exist, but its parent folder must. */
function isInFolder(file: string, folder: string): boolean {
  const parent = realPath(dirname(file))
  const path = realPath(file) ?? (parent === null ? null : join(parent, basename(file)))
  return path !== null && path.startsWith(`${folder}/`)
}

const notAllowed = (message: string, hint = rulesHint): NotAllowed => ({ message, hint })

/** Returns the paths to check, with links resolved, so that a link cannot bypass the rules. */
function findPaths(spec: TaskSpec, agent: RuledAgent): readonly string[] {
  if (spec.kind === 'program') return programPaths(spec)
  if (spec.kind !== 'function' || !spec.definition.module.startsWith('file:')) return []
  const file = resolvePath(fileURLToPath(spec.definition.module))
  return file === null ? [] : [agent.projectPath(file) ?? file]
}

const lookup = new ProgramLookup()

/** The path at which the program is found, or else every path at which it is looked for. */
function programPaths({ executable, shell, cwd, workDir, env }: ProgramSpec): readonly string[] {
  // A shell can run any program, so there is no path to match.
  if (shell) return []
  const path = env !== null && 'PATH' in env ? (env['PATH'] ?? undefined) : process.env['PATH']
  const found = lookup.find(executable, path)
  const files = found === undefined ? candidatesIn(executable, path) : [found]
  return files
    .map((file) => resolvePath(resolve(workDir ?? '.', cwd ?? '.', file)))
    .filter((file) => file !== null)
}

/** The real path, even if the file does not exist; `null` for a dangling symbolic link. */
function resolvePath(file: string): string | null {
  const missing: string[] = []
  for (let existing = file; ; existing = dirname(existing)) {
    const real = realPath(existing)
    if (real !== null) return join(real, ...missing)
    // A dangling link is not allowed, because its target may be created later.
    if (isLink(existing) || existing === dirname(existing)) return null
    missing.unshift(basename(existing))
  }
}

function isLink(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true
}

function realPath(path: string): string | null {
  try {
    return realpathSync(path)
  } catch {
    return null
  }
}
