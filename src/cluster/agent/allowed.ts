/** What an agent is willing to run, beyond that its sender has the token. */

import { realpathSync } from 'node:fs'
import { basename, dirname, join, matchesGlob, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BackendError } from '../../foundation/errors.ts'
import { ProgramLookup } from '../../backends/local/programs/program-lookup.ts'
import type { ProgramSpec, TaskSpec } from '../../tasks/spec.ts'

export interface AllowRules {
  /** Default: both. */
  readonly only?: 'functions' | 'programs'
  /**
   * Absolute paths of programs and modules, after links are followed; modules of a bundle by their
   * path in their project. Default: all.
   */
  readonly allow?: readonly string[]
}

/** The agent that has the rules. */
export interface RuledAgent {
  readonly name: string
  /** The only place where output of programs may be written when paths are restricted. */
  readonly folder: string
  /** The path of a module of a bundle in its project; `null` for a file of this node. */
  projectPath(file: string): string | null
}

/**
 * Why this agent does not run the task, or `null`. The rules are no sandbox: what is allowed runs
 * with all that its arguments make of it.
 */
export function refuseByRules(
  { only, allow }: AllowRules,
  agent: RuledAgent,
  spec: TaskSpec,
): BackendError | null {
  const { name } = agent
  const kind = spec.kind === 'program' ? 'programs' : 'functions'
  if (only !== undefined && only !== kind) {
    return notAllowed(`agent "${name}" runs ${only} only, not ${spec.executable}`)
  }
  if (allow === undefined) return null
  const path = pathOf(spec, agent)
  if (path === null || !allow.some((glob) => matchesGlob(path, glob))) {
    return notAllowed(`agent "${name}" does not allow ${path ?? spec.executable}`)
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
 * Variables that make a loader, a shell, an interpreter or a common tool run other code than that
 * of the program. A star stands for any rest.
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

/** After links are followed; a file that does not exist yet is where its folder is. */
function isBelow(file: string, folder: string): boolean {
  const parent = realPath(dirname(file))
  const path = realPath(file) ?? (parent === null ? null : join(parent, basename(file)))
  return path !== null && path.startsWith(`${folder}/`)
}

const notAllowed = (
  message: string,
  hint = 'Start the agent with another --only or --allow.',
): BackendError => new BackendError(message, { code: 'NotAllowedError', hint })

/** The file itself: a link must not lead around the rules. */
function pathOf(spec: TaskSpec, agent: RuledAgent): string | null {
  if (spec.kind === 'program') return programPath(spec)
  if (spec.kind !== 'function' || !spec.definition.module.startsWith('file:')) return null
  const file = realPath(fileURLToPath(spec.definition.module))
  return file === null ? null : (agent.projectPath(file) ?? file)
}

const lookup = new ProgramLookup()

/** As the launcher finds it. */
function programPath({ executable, shell, cwd, workDir, env }: ProgramSpec): string | null {
  // A shell runs anything.
  if (shell) return null
  const path = env !== null && 'PATH' in env ? (env['PATH'] ?? undefined) : process.env['PATH']
  const found = lookup.find(executable, path)
  return found === undefined ? null : realPath(resolve(workDir ?? '.', cwd ?? '.', found))
}

function realPath(path: string): string | null {
  try {
    return realpathSync(path)
  } catch {
    return null
  }
}
