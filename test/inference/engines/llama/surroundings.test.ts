import { homedir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { registerSecret } from '../../../../src/foundation/secrets.ts'
import { describeExit, hintForExit } from '../../../../src/inference/engines/llama/llama-process.ts'
import { freeCores, toModelSource } from '../../../../src/inference/engines/llama/llama-cpp.ts'
import type { ChildExit } from '../../../../src/runtime/supervised-child.ts'

const exitOf = (exit: Partial<ChildExit>): ChildExit => ({
  code: null,
  signal: null,
  error: null,
  output: '',
  ...exit,
})

describe('where a model is', () => {
  it.each([
    ['/models/a.gguf', 'file /models/a.gguf'],
    ['./a.gguf', 'file ./a.gguf'],
    ['models/a.gguf', 'file models/a.gguf'],
    ['../models/a', 'file ../models/a'],
    ['a', 'file a'],
    ['user/model', 'hub hf:user/model'],
    ['user/model.v1:Q4_K_M', 'hub hf:user/model.v1:Q4_K_M'],
    ['~/m/a.gguf', `file ${join(homedir(), 'm', 'a.gguf')}`],
    ['~/a', `file ${join(homedir(), 'a')}`],
    ['test/inference', 'file test/inference'],
    ['hf:test/inference', 'hub hf:test/inference'],
    ['hf:user/model', 'hub hf:user/model'],
    ['https://example.org/a.gguf', 'hub https://example.org/a.gguf'],
  ])('%s is %s', (name, expected) => {
    const source = toModelSource(name)
    expect(`${source.kind} ${source.kind === 'file' ? source.path : source.uri}`).toBe(expected)
  })
})

describe('the cores that a model takes', () => {
  it.each([
    ['a machine at rest', { available: 8, installed: 8, load: 0.2 }, 8],
    ['a machine at work', { available: 8, installed: 8, load: 5.7 }, 2],
    ['a machine with more to do than it can', { available: 2, installed: 2, load: 9 }, 1],
    ['a process with cores of its own', { available: 4, installed: 64, load: 60 }, 4],
  ])('of %s', (_, facts, expected) => {
    expect(freeCores(facts)).toBe(expected)
  })
})

describe('the unexpected exit of the process of a model', () => {
  it.each([
    [{ code: 1, signal: null, output: '' }, "the model's process ended with exit code 1"],
    [
      { code: null, signal: 'SIGABRT', output: 'one\nggml: assert failed\n  at frame\n' },
      "the model's process was ended by SIGABRT: ggml: assert failed",
    ],
    [
      { code: 3, signal: null, output: 'first\nlast\n\n' },
      "the model's process ended with exit code 3: last",
    ],
  ])('%j', (exit, text) => {
    expect(describeExit(exitOf(exit))).toBe(text)
  })

  it('a process that could not be started is described by the error', () => {
    const exit = exitOf({ error: new Error('spawn ENOMEM') })
    expect(describeExit(exit)).toBe("the model's process failed: spawn ENOMEM")
  })

  it('the last error line is shown without secrets', () => {
    registerSecret('hf_canary123')
    const exit = { code: 1, signal: null, output: 'error: GET with hf_canary123 failed' }
    expect(describeExit(exitOf(exit))).toMatch(/error: GET with \[masked\] failed$/)
  })

  it('a GPU that the binaries do not fit gets a hint', () => {
    const output =
      'CUDA error: the provided PTX was compiled with an unsupported toolchain.\n  in function x\n'
    expect(hintForExit(exitOf({ signal: 'SIGABRT', output }))).toMatch(/build .* from source/)
    expect(hintForExit(exitOf({ code: 1 }))).toBeUndefined()
  })
})
