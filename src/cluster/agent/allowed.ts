/** Decides which tasks an agent runs for a sender that has the token. */

import { lstatSync, realpathSync } from 'node:fs'
import { basename, dirname, join, matchesGlob, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { candidatesIn, ProgramLookup } from '../../backends/local/programs/program-lookup.ts'
import type { ProgramSpec, TaskSpec } from '../../tasks/spec.ts'
import { type AgentRules, type NotAllowed, refuseByKind, rulesHint } from '../wire/messages.ts'

/** The agent to which the rules apply. */
export interface RuledAgent {
  readonly name: string
  /** The only folder to which programs may write output when paths are restricted. */
  readonly folder: string
  /** A bundled module's path in its project; `null` for a file of this node. */
  projectPath(file: string): string | null
}

/**
 * Returns why this agent's rules forbid the task, or `null`. The rules are not a sandbox: they do
 * not limit the behavior of an allowed program.
 */
export function refuseByRules(
  rules: AgentRules,
  agent: RuledAgent,
  spec: TaskSpec,
): NotAllowed | null {
  const { name } = agent
  const { allow } = rules
  const byKind = refuseByKind(name, rules, spec)
  if (byKind !== null || allow === null) return byKind
  const paths = pathsOf(spec, agent)
  if (!paths.some((path) => allow.some((glob) => matchesGlob(path, glob)))) {
    const [path = spec.executable] = paths
    const isShell = spec.kind === 'program' && spec.shell
    const why = isShell ? ' with `shell: true`, which can run any program' : ''
    return notAllowed(`agent "${name}" does not allow ${path}${why}`)
  }
  if (spec.kind !== 'program') return null
  const variable = Object.keys(spec.env ?? {}).find(isLeading)
  if (variable !== undefined) {
    const hint = 'Set it in the environment of the agent, which its tasks inherit.'
    return notAllowed(`agent "${name}" does not allow tasks to set ${variable}`, hint)
  }
  const output = outputPaths(spec).find((file) => !isBelow(file, agent.folder))
  if (output === undefined) return null
  const hint = 'Without `captureStdio` the task has the beginning and the end of its output.'
  return notAllowed(`agent "${name}" does not allow output to be written to ${output}`, hint)
}

const variablesByUse = {
  loader: 'LD_* DYLD_* GLIBC_TUNABLES GCONV_PATH GETCONF_DIR LOCPATH NLSPATH MALLOC_TRACE',
  search:
    'PATH HOME SHELL XDG_* EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE SSH_ASKPASS',
  shells: 'ENV BASH* SHELLOPTS IFS PS4 PROMPT_COMMAND CDPATH FPATH ZDOTDIR',
  javaScript: 'NODE_OPTIONS NODE_PATH NODE_V8_COVERAGE NODE_REPL_* npm_* BUN_* DENO_*',
  interpreters:
    'PYTHON* PERL* RUBY* GEM_* BUNDLE_* LUA_* PHP* R_* JULIA_* TCL* GUILE_* ERL_* OCAML* CAML* ' +
    'OCTAVE_* MATLAB*',
  virtualMachines: 'JAVA_* _JAVA_* JDK_* CLASSPATH DOTNET_* CORECLR_* COR_*',
  plugIns: 'GIT_* MAKEFLAGS MAKEFILES OPENSSL_* CUDA_INJECTION* OMPI_* PMIX_* PRTE_*',
}

/**
 * Variables that make a loader, a shell, an interpreter or a common tool run additional code. A
 * trailing star matches any suffix.
 */
export const leadingVariables = Object.values(variablesByUse).flatMap((names) => names.split(' '))

const isLeading = (variable: string): boolean =>
  leadingVariables.some((one) =>
    one.endsWith('*') ? variable.startsWith(one.slice(0, -1)) : variable === one,
  )

function outputPaths({ captureStdio, workDir, cwd }: ProgramSpec): string[] {
  const files = [captureStdio?.stdout, captureStdio?.stderr].filter((file) => file !== undefined)
  return files.map((file) => resolve(workDir ?? '.', cwd ?? '.', file))
}

/** Compares real paths. For a file that does not exist yet, compares the path of its folder. */
function isBelow(file: string, folder: string): boolean {
  const parent = realPath(dirname(file))
  const path = realPath(file) ?? (parent === null ? null : join(parent, basename(file)))
  return path !== null && path.startsWith(`${folder}/`)
}

const notAllowed = (message: string, hint = rulesHint): NotAllowed => ({ message, hint })

/**
 * Returns the real paths to match, because a symbolic link must not bypass the rules. For a missing
 * file, returns the path it would have, so that the task fails as on any node. Empty for non-files.
 */
function pathsOf(spec: TaskSpec, agent: RuledAgent): readonly string[] {
  if (spec.kind === 'program') return programPaths(spec)
  if (spec.kind !== 'function' || !spec.definition.module.startsWith('file:')) return []
  const file = futurePath(fileURLToPath(spec.definition.module))
  return file === null ? [] : [agent.projectPath(file) ?? file]
}

const lookup = new ProgramLookup()

/** The path at which the launcher finds the program, or all paths at which it would look. */
function programPaths({ executable, shell, cwd, workDir, env }: ProgramSpec): readonly string[] {
  // A shell can run any program, so there is no path to match.
  if (shell) return []
  const path = env !== null && 'PATH' in env ? (env['PATH'] ?? undefined) : process.env['PATH']
  const found = lookup.find(executable, path)
  const files = found === undefined ? candidatesIn(executable, path) : [found]
  return files
    .map((file) => futurePath(resolve(workDir ?? '.', cwd ?? '.', file)))
    .filter((file) => file !== null)
}

/** The real path of a file, or the path it would have if it existed. */
function futurePath(file: string): string | null {
  const missing: string[] = []
  for (let existing = file; ; existing = dirname(existing)) {
    const real = realPath(existing)
    if (real !== null) return join(real, ...missing)
    // The target of a dangling link may change later.
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
