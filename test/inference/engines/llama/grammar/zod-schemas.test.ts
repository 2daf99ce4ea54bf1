import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { toJsonGrammar } from '../../../../../src/inference/engines/llama/grammar/json-grammar.ts'
import { byRun, chooseSeed, createRandom } from '../../../../long-run.ts'
import { generatorOf } from './grammar-text.ts'

describe('schemas of zod', () => {
  const user = z.object({ name: z.string() })
  it.each<[string, z.ZodType]>([
    ['tuple', z.tuple([z.string(), z.number()])],
    ['tuple with more', z.tuple([z.string()], z.number())],
    ['duration', z.iso.duration()],
    ['hostname', z.hostname()],
    ['email', z.email()],
    ['email with a length', z.email().max(50)],
    ['short email', z.email().min(6).max(30)],
    ['url with a length', z.url().max(200)],
    ['short url', z.url().max(40)],
    ['hostname with a length', z.hostname().max(20)],
    [
      'pattern with a length',
      z
        .string()
        .min(3)
        .max(9)
        .regex(/^[a-z]+$/),
    ],
    ['beginning with a length', z.string().startsWith('ab').min(3).max(6)],
    ['end with a length', z.string().endsWith('ab').max(6)],
    ['record', z.record(z.string(), z.number())],
    ['record of an enum', z.record(z.enum(['a', 'b']), z.number())],
    ['partial record', z.partialRecord(z.enum(['a', 'b']), z.number())],
    ['intersection', z.intersection(user, z.object({ age: z.int().positive() }))],
    [
      'union in an object',
      z.object({
        of: z.discriminatedUnion('t', [
          user.extend({ t: z.literal(1) }),
          user.extend({ t: z.literal(2) }),
        ]),
      }),
    ],
    ['loose object', z.looseObject({ a: z.int() })],
    ['positive', z.number().positive()],
  ])('%s', (_, type) => {
    for (const target of ['draft-2020-12', 'draft-7'] as const) {
      const seed = chooseSeed()
      const generate = generatorOf(
        toJsonGrammar(z.toJSONSchema(type, { target })),
        createRandom(seed),
      )
      for (let count = byRun(200, 5000); count > 0; count--) {
        const text = generate()
        expect(type.safeParse(JSON.parse(text)).success, `${text}, seed ${seed}`).toBe(true)
      }
    }
  })

  it('the pattern of addresses of earlier versions', () => {
    const name = String.raw`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]`
    const pattern = String.raw`${name}@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`
    const generate = generatorOf(
      toJsonGrammar({ type: 'string', format: 'email', pattern }),
      createRandom(chooseSeed()),
    )
    for (let count = byRun(200, 5000); count > 0; count--)
      expect(JSON.parse(generate())).toMatch(new RegExp(pattern))
  })
})
