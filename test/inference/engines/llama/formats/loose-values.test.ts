import { expect, it } from 'vitest'
import { toJson } from '../../../../../src/inference/engines/llama/formats/loose-values.ts'

it.each([
  ['True', 'true'],
  ['None', 'null'],
  ['-1.5', '-1.5'],
  ['Paris', '"Paris"'],
  ['', '""'],
  ['constructor', '"constructor"'],
])('a value without quotes becomes JSON: %s', (word, json) => {
  expect(toJson(word)).toBe(json)
})
