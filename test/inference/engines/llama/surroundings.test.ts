import { homedir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { registerSecret } from '../../../../src/foundation/secrets.ts'
import { describeExit, hintForExit } from '../../../../src/inference/engines/llama/exit-reason.ts'
import { freeCores } from '../../../../src/inference/engines/llama/free-cores.ts'
import { toModelSource } from '../../../../src/inference/engines/llama/model-source.ts'
import { NewsOutbox } from '../../../../src/inference/engines/llama/news-outbox.ts'
import type { News } from '../../../../src/inference/engines/llama/protocol.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'

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

describe('the end of a process that nobody asked for', () => {
  it.each([
    [{ code: 1, signal: null, stderr: '' }, "the model's process ended with exit code 1"],
    [
      { code: null, signal: 'SIGABRT', stderr: 'one\nggml: assert failed\n  at frame\n' },
      "the model's process was ended by SIGABRT: ggml: assert failed",
    ],
    [
      { code: 3, signal: null, stderr: 'first\nlast\n\n' },
      "the model's process ended with exit code 3: last",
    ],
  ])('%j', (exit, text) => {
    expect(describeExit(exit)).toBe(text)
  })

  it('is told without secrets', () => {
    registerSecret('hf_canary123')
    const exit = { code: 1, signal: null, stderr: 'error: GET with hf_canary123 failed' }
    expect(describeExit(exit)).toMatch(/error: GET with \[masked\] failed$/)
  })

  it('a GPU that the binaries do not fit gets a hint', () => {
    const stderr =
      'CUDA error: the provided PTX was compiled with an unsupported toolchain.\n  in function x\n'
    expect(hintForExit({ code: null, signal: 'SIGABRT', stderr })).toMatch(/build .* from source/)
    expect(hintForExit({ code: 1, signal: null, stderr: '' })).toBeUndefined()
  })
})

describe('what a model tells of its steps', () => {
  it('goes out at once after a pause, else gathered, and at the end', async () => {
    const clock = new ManualClock()
    const sent: string[][] = []
    const outbox = new NewsOutbox({
      clock,
      send: (news, hasLeft) => {
        sent.push(news.map(({ id }) => id))
        hasLeft()
      },
    })
    const step = (id: string, isLast = false): void => {
      outbox.put({ id })
      expect(outbox.flush(isLast)).toBeUndefined()
    }
    step('a')
    step('b')
    step('c')
    expect(sent).toEqual([['a']])
    await clock.advance(4)
    step('d')
    step('e', true)
    expect(outbox.flush(true)).toBeUndefined()
    expect(sent).toEqual([['a'], ['b', 'c', 'd'], ['e']])
  })

  it('waits for a reader that does not keep up', async () => {
    const leaving: (() => void)[] = []
    const told: (readonly News[])[] = []
    const outbox = new NewsOutbox({
      clock: new ManualClock(),
      send: (news, hasLeft) => {
        told.push(news)
        leaving.push(hasLeft)
      },
    })
    let wait: Promise<void> | undefined
    for (let at = 0; wait === undefined; at++) {
      expect(at).toBeLessThan(100)
      outbox.put({ id: String(at) })
      wait = outbox.flush(true)
    }
    expect(told.length).toBeGreaterThan(1)
    leaving[0]?.()
    await wait
  })
})
