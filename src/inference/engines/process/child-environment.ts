/** What a server gets to see of our environment: what it needs to run, and no secret of others. */

export type Environment = Readonly<Record<string, string | undefined>>

const inherited = new Set(
  'PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH XDG_CACHE_HOME'
    .concat(' HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE OMP_NUM_THREADS')
    .split(' '),
)
const inheritedFamily = /^(?:CUDA|NVIDIA|NCCL|ROCR|HIP|LC)_/
/** Such as `NVIDIA_API_KEY`. */
const secretName = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL/

/** The part of the environment that every child may have. */
export function inheritedEnvironment(environment: Environment): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || secretName.test(name)) continue
    if (inherited.has(name) || inheritedFamily.test(name)) kept[name] = value
  }
  return kept
}

export interface ChildEnvironmentOptions {
  /** The configuration's own, above what is inherited. */
  readonly env: Environment
  readonly hubToken: string | null
  readonly node: number
  readonly gpus: string | null
}

/** The environment of one worker's server. */
export function childEnvironment(
  own: Environment,
  { env, hubToken, node, gpus }: ChildEnvironmentOptions,
): Record<string, string> {
  const configured = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  )
  return {
    ...inheritedEnvironment(own),
    ...(hubToken === null ? {} : { HF_TOKEN: hubToken }),
    ...Object.fromEntries(configured),
    ...(gpus === null ? {} : { CUDA_VISIBLE_DEVICES: gpus }),
    TUTTI_NODE: String(node),
  }
}
