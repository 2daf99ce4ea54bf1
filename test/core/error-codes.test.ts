import { expect, it } from 'vitest'
import { describeHint } from '../../src/core/attributes.ts'
import { InferenceError, StateError } from '../../src/foundation/errors.ts'

it('attributes: the code of a failed prompt is recorded, where it says more than the type', () => {
  const lost = new InferenceError('inference-0 was lost', { code: 'engine_lost', hint: 'Wait.' })
  expect(describeHint(lost)).toEqual({ error_hint: 'Wait.', 'tutti.error_code': 'engine_lost' })
  expect(describeHint(new StateError('closed'))).toEqual({})
  expect(describeHint(new Error('x'))).toEqual({})
})
