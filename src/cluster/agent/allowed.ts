/** What an agent is willing to run, beyond that its sender has the token. */

import { realpathSync } from 'node:fs'
import { matchesGlob } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BackendError } from '../../foundation/errors.ts'
import type { TaskSpec } from '../../tasks/spec.ts'

export interface AllowRules {
  /** Default: both. */
  readonly only?: 'functions' | 'programs'
  /** Absolute paths of programs and modules, after links are followed. Default: all. */
  readonly allow?: readonly string[]
}

/** Why this agent does not run the task, or `null`. */
export function refuseByRules(
  { only, allow }: AllowRules,
  agent: string,
  spec: TaskSpec,
): BackendError | null {
  const kind = spec.kind === 'program' ? 'programs' : 'functions'
  if (only !== undefined && only !== kind) {
    return notAllowed(`agent "${agent}" runs ${only} only`)
  }
  if (allow === undefined) return null
  const path = pathOf(spec)
  if (path !== null && allow.some((glob) => matchesGlob(path, glob))) return null
  return notAllowed(`agent "${agent}" does not allow ${path ?? spec.executable}`)
}

const notAllowed = (message: string): BackendError =>
  new BackendError(message, {
    code: 'NotAllowedError',
    hint: 'Start the agent with another --only or --allow.',
  })

/** The file itself: a link must not lead around the rules. */
function pathOf(spec: TaskSpec): string | null {
  if (spec.kind === 'program') {
    // A shell runs anything.
    return spec.shell ? null : realPath(spec.executable)
  }
  if (spec.kind !== 'function' || !spec.definition.module.startsWith('file:')) return null
  return realPath(fileURLToPath(spec.definition.module))
}

function realPath(path: string): string | null {
  try {
    return path.startsWith('/') ? realpathSync(path) : null
  } catch {
    return null
  }
}
