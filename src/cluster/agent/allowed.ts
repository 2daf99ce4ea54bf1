/** What an agent is willing to run, beyond that its sender has the token. */

import { realpathSync } from 'node:fs'
import { matchesGlob, resolve } from 'node:path'
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

/** The path of a module of a bundle in its project; `null` for a file of this node. */
export type ProjectPaths = (file: string) => string | null

/** Why this agent does not run the task, or `null`. */
export function refuseByRules(
  { only, allow }: AllowRules,
  agent: string,
  spec: TaskSpec,
  projectPath: ProjectPaths,
): BackendError | null {
  const kind = spec.kind === 'program' ? 'programs' : 'functions'
  if (only !== undefined && only !== kind) {
    return notAllowed(`agent "${agent}" runs ${only} only, not ${spec.executable}`)
  }
  if (allow === undefined) return null
  const path = pathOf(spec, projectPath)
  if (path !== null && allow.some((glob) => matchesGlob(path, glob))) return null
  return notAllowed(`agent "${agent}" does not allow ${path ?? spec.executable}`)
}

const notAllowed = (message: string): BackendError =>
  new BackendError(message, {
    code: 'NotAllowedError',
    hint: 'Start the agent with another --only or --allow.',
  })

/** The file itself: a link must not lead around the rules. */
function pathOf(spec: TaskSpec, projectPath: ProjectPaths): string | null {
  if (spec.kind === 'program') return programPath(spec)
  if (spec.kind !== 'function' || !spec.definition.module.startsWith('file:')) return null
  const file = realPath(fileURLToPath(spec.definition.module))
  return file === null ? null : (projectPath(file) ?? file)
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
