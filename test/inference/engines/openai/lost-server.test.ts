import { expect, it } from 'vitest'
import { eventually } from '../../../eventually.ts'
import { type Reply } from '../../server/served.ts'
import { hang } from './fixtures/openai-server.ts'
import { asked, openPassing } from './open-passing.ts'

const refusalOf = ({ status, json, headers }: Reply): unknown => [
  status,
  json.error.code,
  headers.get('retry-after'),
]

it('row 79: clients of a server that is gone get 503 until it is back', async () => {
  const warnings: string[] = []
  const log = { warn: (code: string) => warnings.push(code) }
  const one = { engine: { max_concurrency: 1 } }
  const { upstream, endpoint, chat } = await openPassing(one, {}, { log })
  const { port } = upstream
  upstream.plan(hang())
  // The second one waits in the queue.
  const waiting = [chat(asked), chat({ ...asked, stream: true })]
  await upstream.arrived(1)
  await upstream.close()
  const refused = [503, 'not_ready', '5']
  expect((await Promise.all(waiting)).map(refusalOf)).toEqual([refused, refused])
  expect(warnings).toContain('EngineStartFailed')
  // At once: neither the next attempt nor a time-out is waited for.
  expect(refusalOf(await chat(asked))).toEqual(refused)
  expect(refusalOf(await chat({ ...asked, stream: true }))).toEqual(refused)
  const health = await fetch(`${endpoint}/health`)
  expect(await health.json()).toMatchObject({ batch_config: { pending_requests: 0 } })
  await upstream.listen(port)
  await eventually(async () => expect((await chat(asked)).status).toBe(200))
})
