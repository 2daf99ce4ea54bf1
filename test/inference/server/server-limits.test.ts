import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { resolveServerLimits } from '../../../src/inference/server/server-limits.ts'

it('docs/inference.md lists every limit with its default', () => {
  const text = readFileSync(new URL('../../../docs/inference.md', import.meta.url), 'utf8')
  const table = /^\| key of `limits`.*\n((?:\|.*\n)+)/m.exec(text)?.[1] ?? ''
  const keys = table.split('\n').map((row) => row.split('|')[1] ?? '')
  const listed = keys.flatMap((cell) => [...cell.matchAll(/`(\w+)` \((.*?)\)/g)])
  const documented = Object.fromEntries(listed.map(([, key = '', value = '']) => [key, value]))
  const limits = Object.entries(resolveServerLimits())
  const defaults = Object.fromEntries(limits.map(([key, value]) => [key, JSON.stringify(value)]))
  // A backend passes its own value on.
  expect(documented).toEqual({
    ...defaults,
    drainSeconds: 'the value of the option `drainSeconds`',
  })
})
