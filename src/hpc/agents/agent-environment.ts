/** The environment that tasks inherit from an agent: the script's, without that of its job step. */

import { runVariable } from '../../checkpoint/run-file.ts'
import { launchVariable } from '../start-method.ts'

type Variables = Record<string, string | undefined>

/** Tasks keep these; all others would affect an `srun` or an MPI program that a task starts. */
const keptVariables = new Set(['SLURM_CONF', 'SLURM_JOB_ID'])
const stepVariable = /^(?:SLURM_|PMI_|PMI2_|PMIX_)/
/** The variables of the script's launch. A tutti script that runs as a task must not join it. */
const launchVariables = new Set([launchVariable, runVariable])
/**
 * AMD's equivalents of `CUDA_VISIBLE_DEVICES`. HIP also reads `CUDA_VISIBLE_DEVICES` and applies it
 * to the GPUs that these variables leave visible, so tasks must not have both.
 */
const amdVariables = ['ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'GPU_DEVICE_ORDINAL']
/** Intel's variable, which tasks get in addition to `CUDA_VISIBLE_DEVICES` if the step has it. */
const intelVariable = 'ZE_AFFINITY_MASK'

/**
 * Removes variables that tasks must not have, and hides all GPUs, because each task gets its own.
 * Returns the step's GPUs in the form of `CUDA_VISIBLE_DEVICES`; `undefined` if it names none.
 */
export function cleanEnvironment(env: Variables): string | undefined {
  const names = ['CUDA_VISIBLE_DEVICES', ...amdVariables, intelVariable]
  const gpus = names.map((one) => env[one]).find((ids) => ids !== undefined)
  const isAmd = amdVariables.some((one) => env[one] !== undefined)
  for (const variable of Object.keys(env)) {
    const isOfStep = stepVariable.test(variable) && !keptVariables.has(variable)
    const isOther = launchVariables.has(variable) || amdVariables.includes(variable)
    if (isOfStep || isOther) Reflect.deleteProperty(env, variable)
  }
  // HIP treats an empty list as unset; -1 means no GPU, as for CUDA.
  env['CUDA_VISIBLE_DEVICES'] = isAmd ? '-1' : ''
  // For Intel, an empty list means all GPUs; a number that does not exist means none.
  if (env[intelVariable] !== undefined) env[intelVariable] = '65535'
  return gpus
}
