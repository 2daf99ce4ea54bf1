import { describe, expect, it } from 'vitest'
import {
  checkTemplate,
  fillTemplate,
} from '../../../../src/inference/engines/process/server-command.ts'

const values = {
  model: 'a/b',
  port: 81,
  host: '::1',
  tp_size: 2,
  worker: 3,
  node: 4,
  dtype: 'float16',
  max_model_len: 64,
  gpu_memory_utilization: 0.9,
}

describe('the command of a server', () => {
  it.each([
    [
      ['vllm', 'serve', '{model}', '--port', '{port}'],
      ['vllm', 'serve', 'a/b', '--port', '81'],
    ],
    [
      ['{model}{model}', '-t={tp_size}'],
      ['a/ba/b', '-t=2'],
    ],
    [
      ['x', '{host}:{port}', 'w{worker}n{node}'],
      ['x', '::1:81', 'w3n4'],
    ],
    [
      ['x', '{"a":{"b":1}}', '{}', '{ model }', '{1}'],
      ['x', '{"a":{"b":1}}', '{}', '{ model }', '{1}'],
    ],
    [
      ['x', '$(rm {port}) ; `y` "z"'],
      ['x', '$(rm 81) ; `y` "z"'],
    ],
  ])('%j becomes %j', (template, command) => {
    checkTemplate(template)
    expect(fillTemplate(template, values)).toEqual(command)
  })

  it('placeholders in filled-in values are not replaced', () => {
    expect(fillTemplate(['x', '{model}'], { ...values, model: '{port}$&' })).toEqual([
      'x',
      '{port}$&',
    ])
  })

  it('an unknown placeholder is refused, and the nearest known one is named', () => {
    expect(() => checkTemplate(['x', '--tp', '{tpsize}'])).toThrow(
      'command[2]: unknown placeholder {tpsize}; did you mean "tp_size"? (known: {model}, {port}',
    )
    expect(() => checkTemplate(['{toString}'])).toThrow('unknown placeholder {toString} (known: ')
  })

  it.each([[[]], [['']]])('%j is refused: it has no program', (template) => {
    expect(() => checkTemplate(template)).toThrow('a program and its arguments')
  })
})
