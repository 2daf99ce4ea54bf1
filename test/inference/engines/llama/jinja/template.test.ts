import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { JinjaTemplate } from '../../../../../src/inference/engines/llama/jinja/template.ts'
import { TemplateError } from '../../../../../src/inference/engines/llama/jinja/limits.ts'
import { hasJinja, now, renderWithJinja } from './reference.ts'

const variables = {
  name: 'Ada',
  none: null,
  yes: true,
  list: [3, 1, 2],
  words: ['b', 'A', 'c'],
  nested: { b: { x: 1 }, a: [1, 'two', null, 1.5, false] },
  people: [
    { name: 'Ada', age: 36, city: 'London' },
    { name: 'Bob', age: null },
  ],
  text: '  a <b> "c" \n',
}

/** Each source with what Jinja makes of it. */
const cases = JSON.parse(
  readFileSync(new URL('cases.json', import.meta.url), 'utf8'),
) as readonly (readonly [string, string])[]

const render = (source: string): string => new JinjaTemplate(source, () => now).render(variables)

describe('JinjaTemplate', () => {
  it.each(cases)('%j', (source, wanted) => {
    expect(render(source)).toBe(wanted)
  })

  it.runIf(hasJinja)('Jinja agrees with every case (needs python3-jinja2)', () => {
    const found = renderWithJinja(cases.map(([source]) => [source, variables]))
    for (const [at, [source, wanted]] of cases.entries()) {
      expect(found[at], source).toEqual({ text: wanted })
    }
  })

  it.each([
    ['{{ missing.x }}', "'missing' is undefined"],
    ['{{ nested.q.x }}', "'dict object' has no attribute 'q'"],
    ['{{ name + 1 }}', 'can only concatenate str (not "int") to str'],
    ['{{ none() }}', "'NoneType' object is not callable"],
    ['{{ 1|nothing }}', "No filter named 'nothing'."],
    ["{{ '{:x}'.format(255) }}", 'format supports only {}, {0} and {name}'],
    ["{{ '{0.items}'.format(nested) }}", 'format supports only {}, {0} and {name}'],
    ["{{ 'a}'.format(1) }}", 'format supports only {}, {0} and {name}'],
    ["{{ '%d' % 1 }}", "unsupported operand type(s) for %: 'str' and 'int'"],
    ["{{ 'a b'|wordcount }}", "No filter named 'wordcount'."],
    ['{% for x in [[1]] %}{{ loop(x) }}{% endfor %}', 'the loop is not recursive'],
    ["{{ '{} {}'.format(1) }}", 'format has no value for {}'],
    ["{{ 'a'|abs }}", "bad operand type for abs(): 'str'"],
    ['{{ 1 is nothing }}', "No test named 'nothing'."],
    [
      '{{ people|map(attribute="name")|tojson }}',
      'Object of type generator is not JSON serializable',
    ],
    ['{% for x in range(10000000) %}{% endfor %}', 'a range is too long'],
    ['{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', 'the template calls itself too deeply'],
    [
      '{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}',
      'the template takes too many steps',
    ],
    [
      '{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}',
      'the template takes too many steps',
    ],
    [
      '{% for a in range(9999) %}{% for b in range(9999) if false %}x{% endfor %}{% endfor %}',
      'the template takes too many steps',
    ],
    [
      '{% set l = range(99999) | list %}{% for a in range(99999) %}{{ -1 in l }}{% endfor %}',
      'the template takes too many steps',
    ],
    [
      '{% set n = namespace(l=[1]) %}{% for a in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}',
      'the template takes too many steps',
    ],
    [
      '{% set n = namespace(t="a") %}{% for a in range(60) %}' +
        '{% set n.t = [n.t, n.t] | join %}{% endfor %}',
      'a text is too long',
    ],
    [
      '{% set t = "x" * 100000 %}{% for a in range(9999) %}{{ t }}{% endfor %}',
      'the template writes too much',
    ],
  ])('JinjaTemplate fails at %j', (source, message) => {
    expect(() => render(source)).toThrow(message)
  })

  it.each([
    ['{% if x %}', "'endif' is missing"],
    ['{% nonsense %}', "unknown tag 'nonsense'"],
    ['{% call f() %}{% endcall %}', "unknown tag 'call'"],
    ['{{ a b }}', "expected '}}', got 'b' (line 1)"],
    ['a\n{{ + }}', "expected 'an expression', got '}}' (line 2)"],
    ['{{ "a }}', 'unexpected char'],
    ['{# never ends', 'Missing end of comment tag (line 1)'],
  ])('JinjaTemplate refuses to read %j', (source, message) => {
    expect(() => new JinjaTemplate(source, () => now)).toThrow(message)
  })

  it('JinjaTemplate separates what a template raises from what fails in it', () => {
    const errorOf = (source: string): unknown => {
      try {
        return render(source)
      } catch (error) {
        return error
      }
    }
    expect(errorOf('{{ raise_exception("roles must alternate") }}')).toMatchObject({
      message: 'roles must alternate',
      isRaised: true,
    })
    expect(errorOf('{{ missing.x }}')).toMatchObject({ isRaised: false })
    expect(errorOf('{{ missing.x }}')).toBeInstanceOf(TemplateError)
  })
})
