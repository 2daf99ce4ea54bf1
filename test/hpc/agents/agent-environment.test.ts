import { expect, it } from 'vitest'
import { cleanEnvironment } from '../../../src/hpc/agents/agent-environment.ts'

it.each([
  ['NVIDIA', { CUDA_VISIBLE_DEVICES: '2,3' }, '2,3', { CUDA_VISIBLE_DEVICES: '' }],
  ['AMD', { ROCR_VISIBLE_DEVICES: '0,1' }, '0,1', { CUDA_VISIBLE_DEVICES: '-1' }],
  [
    'Intel',
    { ZE_AFFINITY_MASK: '0.0,0.1' },
    '0.0,0.1',
    { CUDA_VISIBLE_DEVICES: '', ZE_AFFINITY_MASK: '65535' },
  ],
  [
    'of a make that Slurm does not know',
    {
      CUDA_VISIBLE_DEVICES: '0,1',
      GPU_DEVICE_ORDINAL: '0,1',
      ROCR_VISIBLE_DEVICES: '0,1',
      ZE_AFFINITY_MASK: '0,1',
    },
    '0,1',
    { CUDA_VISIBLE_DEVICES: '-1', ZE_AFFINITY_MASK: '65535' },
  ],
  ['none', {}, undefined, { CUDA_VISIBLE_DEVICES: '' }],
])('GPUs of a step are taken, and hidden from tasks without GPUs: %s', (_, step, gpus, left) => {
  const env = { PATH: '/bin', SLURM_JOB_ID: '7', SLURM_STEP_ID: '0', TUTTI_LAUNCH: 'x', ...step }
  expect(cleanEnvironment(env)).toBe(gpus)
  expect(env).toEqual({ PATH: '/bin', SLURM_JOB_ID: '7', ...left })
})
