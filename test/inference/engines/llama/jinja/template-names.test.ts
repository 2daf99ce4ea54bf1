import { describe, expect, it } from 'vitest'
import { JinjaTemplate } from '../../../../../src/inference/engines/llama/jinja/template.ts'
import { now } from './reference.ts'

const namesOf = (source: string) => new JinjaTemplate(source, () => now).names

describe('names that a template reads', () => {
  it.each([
    ['user and enable_thinking in the text', ''],
    ["{{ 'enable_thinking' }}", ''],
    ['{# enable_thinking #}', ''],
    ['{{ a.b }}{{ c["d"] }}{{ e(f, g=h) | join(i) }}', 'a c e f h i'],
    ['{% if a is defined and not b %}{{ 1 if c else d }}{% elif e %}{% endif %}', 'a b c d e'],
    ['{% for m, n in a if m %}{{ m }}{{ n }}{{ loop.index }}{% else %}{{ m }}{% endfor %}', 'a m'],
    ['{% set a = b %}{{ a }}', 'b'],
    ['{% set a = a if a is defined else 1 %}', 'a'],
    ['{% if not a is defined %}{% set a = 1 %}{% endif %}{{ a }}', 'a'],
    ['{% set n = namespace(a=b) %}{% set n.c = d %}{{ n.c }}', 'b d'],
    ['{% set a %}{{ b }}{% endset %}{{ a }}', 'b'],
    ['{% macro m(a, b=c) %}{{ a }}{{ b }}{{ d }}{% endmacro %}{{ m(e) }}', 'c d e'],
    ["{{ raise_exception(strftime_now('%d')) }}{{ range(3) }}", ''],
    ['{{ {a: [b, (c, d)], "e": f[g:h]} }}{{ -i + j ~ k }}', 'a b c d f g h i j k'],
  ])('%s', (source, variables) => {
    expect([...namesOf(source).variables].toSorted().join(' ')).toBe(variables)
  })

  it('members are read as attributes or with their names', () => {
    const { members } = namesOf("{{ a.b }}{{ a['c'] }}{{ a.get('d') }}{% if 'e' in a %}{% endif %}")
    expect([...members].toSorted()).toEqual(['b', 'c', 'd', 'e', 'get'])
  })
})
