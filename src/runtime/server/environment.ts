/** Selects the environment variables that server programs inherit. */

/** Environment variables by name. */
export type Environment = Readonly<Record<string, string | undefined>>

const inherited = new Set(
  'PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH XDG_CACHE_HOME'
    .concat(' HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE OMP_NUM_THREADS')
    .split(' '),
)
const inheritedFamily = /^(?:CUDA|NVIDIA|NCCL|ROCR|HIP|LC)_/
const secretName = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL/

/** Returns the variables that server programs inherit. Never returns secrets. */
export function inheritedEnvironment(environment: Environment): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || secretName.test(name)) continue
    if (inherited.has(name) || inheritedFamily.test(name)) kept[name] = value
  }
  return kept
}
