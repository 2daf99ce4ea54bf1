/** Which environment variables server programs inherit. Pure. */

/** Environment variables by name. */
export type Environment = Readonly<Record<string, string | undefined>>

const inherited = new Set(
  'PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH XDG_CACHE_HOME'
    .concat(' HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE OMP_NUM_THREADS')
    .split(' '),
)
const inheritedFamily = /^(?:CUDA|NVIDIA|NCCL|ROCR|HIP|LC)_/
/** Matches names such as `NVIDIA_API_KEY`. */
const secretName = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL/

/** The variables that every server program inherits; never secrets. */
export function inheritedEnvironment(environment: Environment): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || secretName.test(name)) continue
    if (inherited.has(name) || inheritedFamily.test(name)) kept[name] = value
  }
  return kept
}
