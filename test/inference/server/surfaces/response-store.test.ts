import { describe, expect, it } from 'vitest'
import type { Item } from '../../../../src/inference/server/surfaces/response-request.ts'
import { ResponseStore } from '../../../../src/inference/server/surfaces/response-store.ts'

const toMessage = (content: string): Item => ({ role: 'user', content })

const toJson = (content: string): string => JSON.stringify({ output: [toMessage(content)] })

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
    for (let at = 0; at <= 1000; at++) store.add('ann', `resp_${at}`, [], toJson('a'))
    const kept = ['resp_0', 'resp_1', 'resp_1000'].map((id) => isKept(store, id))
    expect(kept).toEqual([false, true, true])
  })

  it('the store of responses gives a client its own responses and items alone', () => {
    const store = new ResponseStore()
    store.add('ann', 'resp_1', [], toJson('a secret'))
    expect(isKept(store, 'resp_1', 'bob')).toBe(false)
    for (const steal of [
      () => store.getJson('bob', 'resp_1'),
      () => store.delete('bob', 'resp_1'),
    ]) {
      expect(steal).toThrow("Response with id 'resp_1' not found.")
    }
    const item = { type: 'item_reference' as const, id: 'msg_1_0' }
    expect(store.resolve('ann', [item], null)).toMatchObject([{ item: { content: 'a secret' } }])
    expect(() => store.resolve('bob', [item], null)).toThrow(/msg_1_0/)
  })

  it('responses that were deleted make room for others', () => {
    const store = new ResponseStore()
    for (let at = 0; at < 1000; at++) store.add('ann', `resp_${at}`, [], toJson('a'))
    store.delete('ann', 'resp_0')
    store.delete('ann', 'resp_7')
    for (let at = 1000; at < 1004; at++) store.add('ann', `resp_${at}`, [], toJson('a'))
    const kept = [0, 1, 2, 3, 7, 8, 1003].map((at) => isKept(store, `resp_${at}`))
    expect(kept).toEqual([false, false, false, true, false, true, true])
    for (let at = 3; at < 1004; at++) if (at !== 7) store.delete('ann', `resp_${at}`)
    for (let at = 2000; at <= 3000; at++) store.add('ann', `resp_${at}`, [], toJson('a'))
    expect([2000, 2001, 3000].map((at) => isKept(store, `resp_${at}`))).toEqual([false, true, true])
  })

  it('the store of responses drops the oldest beyond 64 MiB', () => {
    const store = new ResponseStore()
    const large = toMessage('a'.repeat(15 << 19))
    for (let at = 0; at < 5; at++) store.add('ann', `resp_${at}`, [large], toJson('a'))
    const kept = [0, 1, 4].map((at) => isKept(store, `resp_${at}`))
    expect(kept).toEqual([false, true, true])
    const items = Array.from({ length: 5 }, () => large)
    store.add('ann', 'resp_huge', items, toJson('a'))
    expect([isKept(store, 'resp_huge'), isKept(store, 'resp_4')]).toEqual([false, true])
  })
})
