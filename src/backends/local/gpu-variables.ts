/** How programs and functions are shown their GPUs. Loaded by every worker. */

/** CUDA's variable, which HIP reads as well, and Intel's where this process has it. */
export const gpuVariables = (): readonly string[] =>
  process.env['ZE_AFFINITY_MASK'] === undefined
    ? ['CUDA_VISIBLE_DEVICES']
    : ['CUDA_VISIBLE_DEVICES', 'ZE_AFFINITY_MASK']
