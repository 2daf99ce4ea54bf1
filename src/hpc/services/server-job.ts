/** The jobs that run a server on a node: one finds an address, the other runs the server. */

import type { Job, TaskReport } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { inheritedEnvironment } from '../../runtime/server/environment.ts'
import type { ServerOrder } from '../../runtime/server/node-servers.ts'
import { definitionOf } from '../../tasks/define-task.ts'
import { defaultResources } from '../../tasks/resources.ts'
import type { FunctionSpec, ProgramSpec, TaskSpec } from '../../tasks/spec.ts'
import { findServerPlace } from './server-place.ts'

export class ServerJob extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt = 1
  readonly spec: TaskSpec
  readonly onReport: (report: TaskReport) => void

  constructor(
    id: { readonly sessionId: string; readonly uid: string },
    spec: TaskSpec,
    onReport: (report: TaskReport) => void,
  ) {
    super()
    this.sessionId = id.sessionId
    this.uid = id.uid
    this.spec = spec
    this.onReport = onReport
  }
}

const common = { priority: 0, timeoutSeconds: null, workDir: null }

/** `driver` is an address of this machine. */
export function toPlaceSpec(driver: string): FunctionSpec {
  const definition = definitionOf(findServerPlace)
  if (definition === undefined) throw new TypeError('the function is not defined')
  const { name: executable } = definition
  const resources = defaultResources
  return { kind: 'function', executable, definition, args: [driver], resources, ...common }
}

export function toServerSpec(
  [executable = '', ...words]: readonly string[],
  { env, cores, gpus }: Pick<ServerOrder, 'env' | 'cores' | 'gpus'>,
): ProgramSpec {
  return {
    kind: 'program',
    executable,
    arguments: words,
    cwd: null,
    env: { ...removals(process.env), ...env },
    stdin: null,
    shell: false,
    captureStdio: null,
    killBackground: true,
    isFollowed: true,
    namedCores: null,
    resources: { ...defaultResources, cores, gpus },
    ...common,
  }
}

/**
 * Agents inherit the script's variables. Removes those that a server on this machine would not
 * inherit.
 */
function removals(own: NodeJS.ProcessEnv): Record<string, null> {
  const kept = inheritedEnvironment(own)
  const names = Object.keys(own).filter((name) => !(name in kept))
  return Object.fromEntries(names.map((name) => [name, null]))
}
