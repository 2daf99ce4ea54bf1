import { describe, expect, it } from 'vitest'
import type { Item } from '../../../../src/inference/server/surfaces/response-request.ts'
import { ResponseStore } from '../../../../src/inference/server/surfaces/response-store.ts'

const toMessage = (content: string): Item => ({ role: 'user', content })

const isKept = (store: ResponseStore, id: string, owner = 'ann'): boolean => {
  try {
    return store.resolve(owner, 'next', id).length > 1
  } catch (error) {
    expect(error).toMatchObject({ status: 404, code: 'previous_response_not_found' })
    return false
  }
}

describe('the stored responses', () => {
  it('the store of responses drops the oldest beyond 1,000', () => {
    const store = new ResponseStore()
    for (let at = 0; at <= 1000; at++)
      store.add('ann', [], { id: `resp_${at}`, output: [toMessage('a')] })
    const kept = ['resp_0', 'resp_1', 'resp_1000'].map((id) => isKept(store, id))
    expect(kept).toEqual([false, true, true])
  })

  it('the store of responses gives a client its own responses and items alone', () => {
    const store = new ResponseStore()
    store.add('ann', [], { id: 'resp_1', output: [toMessage('a secret')] })
    expect(isKept(store, 'resp_1', 'bob')).toBe(false)
    for (const steal of [() => store.get('bob', 'resp_1'), () => store.delete('bob', 'resp_1')]) {
      expect(steal).toThrow("Response with id 'resp_1' not found.")
    }
    const item = { type: 'item_reference' as const, id: 'msg_1_0' }
    expect(store.resolve('ann', [item], null)).toMatchObject([{ item: { content: 'a secret' } }])
    expect(() => store.resolve('bob', [item], null)).toThrow(/msg_1_0/)
  })

  it('the store of responses drops the oldest beyond 64 MiB', () => {
    const store = new ResponseStore()
    const large = toMessage('a'.repeat(15 << 19))
    for (let at = 0; at < 5; at++) store.add('ann', [large], { id: `resp_${at}`, output: [] })
    const kept = [0, 1, 4].map((at) => isKept(store, `resp_${at}`))
    expect(kept).toEqual([false, true, true])
    const items = Array.from({ length: 5 }, () => large)
    store.add('ann', items, { id: 'resp_huge', output: [] })
    expect([isKept(store, 'resp_huge'), isKept(store, 'resp_4')]).toEqual([false, true])
  })
})
