import { describe, expect, it } from 'vitest'
import { childEnvironment } from '../../../../src/inference/engines/process/server-command.ts'

const plain = { env: {}, hubToken: null, node: 0, gpus: null }

describe('the environment of a server', () => {
  it('the environment of a server has the variables that programs need, and no secrets', () => {
    const kept = {
      PATH: 'p',
      HOME: 'h',
      LANG: 'l',
      LC_ALL: 'c',
      LD_LIBRARY_PATH: 'd',
      TMPDIR: 't',
      CUDA_HOME: 'u',
      CUDA_VISIBLE_DEVICES: '5',
      NVIDIA_VISIBLE_DEVICES: 'v',
      NCCL_DEBUG: 'n',
      HF_HOME: 'f',
    }
    const dropped = {
      HF_TOKEN: 'x',
      NVIDIA_API_KEY: 'x',
      OPENAI_API_KEY: 'x',
      AWS_SECRET_ACCESS_KEY: 'x',
      NODE_OPTIONS: 'x',
      LD_PRELOAD: 'x',
      HIPPO: 'x',
      EMPTY: undefined,
    }
    const made = childEnvironment({ ...kept, ...dropped }, plain)
    expect(made).toEqual({ ...kept, TUTTI_NODE: '0' })
  })

  it('configured variables override inherited ones; node and GPUs override both', () => {
    const env = { PATH: 'mine', LD_PRELOAD: 'wanted', TUTTI_NODE: '9', GONE: undefined }
    const options = { env, hubToken: 'hf', node: 2, gpus: '1,2' }
    expect(childEnvironment({ PATH: 'p', CUDA_VISIBLE_DEVICES: '0,1,2' }, options)).toEqual({
      PATH: 'mine',
      LD_PRELOAD: 'wanted',
      HF_TOKEN: 'hf',
      CUDA_VISIBLE_DEVICES: '1,2',
      TUTTI_NODE: '2',
    })
  })
})
