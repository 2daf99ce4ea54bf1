import { describe, expect, it } from 'vitest'
import { ValueError } from '../../src/foundation/errors.ts'
import type { TaskSpec } from '../../src/tasks/spec.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import type { WorkflowEngine } from '../../src/workflow/index.ts'
import { openEngine } from './open-engine.ts'

const noClosures = ({ kind }: TaskSpec) =>
  kind === 'closure' ? { field: 'function', message: 'a closure cannot leave this process' } : null
const full = () => ({ field: 'resources.cores', message: 'asks for 2, has 1' })
const one = (): number => 1

describe('a closure that no backend runs', () => {
  it('definition: is refused where it is wrapped, not where it is called', async () => {
    const remote = new FakeBackend({ name: 'remote', refuse: noClosures })
    const { flow } = await openEngine({ backend: [remote] })
    const refusal = { name: 'ValueError', field: 'function' }
    expect(() => flow.functionTask(one)).toThrow(expect.objectContaining(refusal))
    expect(() => flow.functionTask(one)).toThrow('a closure cannot leave this process')
    // A block runs outside of all backends.
    flow.block(one)
  })

  it('definition: counts the backend that the task names, and reasons of kind alone', async () => {
    const remote = new FakeBackend({ name: 'remote', refuse: noClosures })
    const small = new FakeBackend({ name: 'small', refuse: full })
    const { flow } = await openEngine({ backend: [remote, small] })
    expect(() => flow.functionTask(one, { backend: 'remote' })).toThrow(ValueError)
    flow.functionTask(one)
    flow.functionTask(one, { backend: 'small' })
  })
})

it.each([
  ['executableTask', 'returns the program to run'],
  ['promptTask', 'returns the prompts'],
  ['block', 'calls tasks'],
] as const)('decorator: %s says what it is for', async (method, purpose) => {
  const { flow } = await openEngine()
  const context = { kind: 'method', name: 'run', static: false, private: false, metadata: {} }
  const decorate = flow[method] as unknown as (...words: unknown[]) => void
  // Compiled decorators are called without `this`.
  const use = (engine: WorkflowEngine | undefined) => (): void =>
    decorate.call(engine, one, { ...context, addInitializer() {} })
  for (const engine of [flow, undefined]) {
    expect(use(engine)).toThrow(ValueError)
    expect(use(engine)).toThrow(purpose)
    expect(use(engine)).toThrow(expect.objectContaining({ hint: expect.stringContaining(method) }))
  }
})
