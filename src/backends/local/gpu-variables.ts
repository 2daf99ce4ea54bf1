/**
 * The environment variables that select the GPUs of a task. Every worker loads this file, so it has
 * no imports.
 */

/** CUDA's variable, which HIP reads too, and Intel's if it is set in this process. */
export const gpuVariables = (): readonly string[] =>
  process.env['ZE_AFFINITY_MASK'] === undefined
    ? ['CUDA_VISIBLE_DEVICES']
    : ['CUDA_VISIBLE_DEVICES', 'ZE_AFFINITY_MASK']
