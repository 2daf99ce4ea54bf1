/** What tasks inherit from an agent: the script's variables, without those of its step. Pure. */

import { runVariable } from '../../checkpoint/run-file.ts'
import { launchVariable } from '../start-method.ts'

type Variables = Record<string, string | undefined>

/** Tasks keep these; all others would shape an `srun` or an MPI program of theirs. */
const keptVariables = new Set(['SLURM_CONF', 'SLURM_JOB_ID'])
const stepVariable = /^(?:SLURM_|PMI_|PMI2_|PMIX_)/
/** Those of the script's launch: a script of tutti that is a task is no part of it. */
const launchVariables = new Set([launchVariable, runVariable])
/**
 * AMD's names for what a task gets as `CUDA_VISIBLE_DEVICES`, which HIP reads as well: it would
 * count among those that these leave.
 */
const amdVariables = ['ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'GPU_DEVICE_ORDINAL']
/** Intel's, which a task gets beside `CUDA_VISIBLE_DEVICES` where the step has it. */
const intelVariable = 'ZE_AFFINITY_MASK'

/**
 * Removes what tasks must not have, and hides the GPUs: tasks that ask for some are shown theirs.
 * Returns those of the step by `CUDA_VISIBLE_DEVICES`; `undefined` if it names none.
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
  // HIP takes an empty list for none given, and -1 for no GPU, as CUDA does.
  env['CUDA_VISIBLE_DEVICES'] = isAmd ? '-1' : ''
  // An empty list stands for all of Intel's GPUs; numbers that are not there for none.
  if (env[intelVariable] !== undefined) env[intelVariable] = '65535'
  return gpus
}
