/** Prepares the environment that tasks inherit from an agent. */

import { runVariable } from '../../checkpoint/run-file.ts'
import { launchVariable } from '../start-method.ts'

type Variables = Record<string, string | undefined>

/**
 * The variables of the Slurm step that tasks inherit. Other variables would affect an `srun` or MPI
 * program that a task starts.
 */
const keptVariables = new Set(['SLURM_CONF', 'SLURM_JOB_ID'])
const stepVariable = /^(?:SLURM_|PMI_|PMI2_|PMIX_)/
/** Variables to remove, so that a tutti script that runs as a task does not join this launch. */
const launchVariables = new Set([launchVariable, runVariable])
/**
 * AMD's equivalents of `CUDA_VISIBLE_DEVICES`. They are removed, because HIP would apply them in
 * addition to that variable.
 */
const amdVariables = ['ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'GPU_DEVICE_ORDINAL']
/** Intel's equivalent of `CUDA_VISIBLE_DEVICES`. Tasks get both variables. */
const intelVariable = 'ZE_AFFINITY_MASK'

/**
 * Removes variables that tasks must not inherit, and hides all GPUs. Returns the step's GPUs in the
 * form of `CUDA_VISIBLE_DEVICES`; `undefined` if no variable names any.
 */
export function cleanEnvironment(env: Variables): string | undefined {
  const names = ['CUDA_VISIBLE_DEVICES', ...amdVariables, intelVariable]
  const gpus = names.map((one) => env[one]).find((ids) => ids !== undefined)
  const isAmd = amdVariables.some((one) => env[one] !== undefined)
  for (const variable of Object.keys(env)) {
    const isOfStep = stepVariable.test(variable) && !keptVariables.has(variable)
    const isExcluded = launchVariables.has(variable) || amdVariables.includes(variable)
    if (isOfStep || isExcluded) Reflect.deleteProperty(env, variable)
  }
  // HIP treats an empty list as unset. For HIP, as for CUDA, -1 means no GPU.
  env['CUDA_VISIBLE_DEVICES'] = isAmd ? '-1' : ''
  // For Intel, an empty list means all GPUs, and an unknown number means none.
  if (env[intelVariable] !== undefined) env[intelVariable] = '65535'
  return gpus
}
