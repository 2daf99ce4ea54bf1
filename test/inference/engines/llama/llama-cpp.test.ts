import { homedir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { freeCores, toModelSource } from '../../../../src/inference/engines/llama/llama-cpp.ts'

describe('the source of a model', () => {
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
  ])('the model name %s means %s', (name, expected) => {
    const source = toModelSource(name)
    expect(`${source.kind} ${source.kind === 'file' ? source.path : source.uri}`).toBe(expected)
  })
})

describe('the default number of threads', () => {
  it.each([
    ['an idle machine', { available: 8, installed: 8, load: 0.2 }, 8],
    ['a busy machine', { available: 8, installed: 8, load: 5.7 }, 2],
    ['an overloaded machine', { available: 2, installed: 2, load: 9 }, 1],
    ['a process with cores reserved for it', { available: 4, installed: 64, load: 60 }, 4],
  ])('the number of threads on %s is that of free cores, at least one', (_, facts, expected) => {
    expect(freeCores(facts)).toBe(expected)
  })
})
