import { describe, expect, it } from 'vitest'
import { TemplateError } from '../../../../../src/inference/engines/llama/jinja/limits.ts'
import { JinjaTemplate } from '../../../../../src/inference/engines/llama/jinja/template.ts'
import * as chat from '../../../../../src/inference/engines/llama/templates/chat-template.ts'
import { now } from './reference.ts'

function errorOf(source: string): unknown {
  try {
    return new JinjaTemplate(source, () => now).render({ content: 'hello' })
  } catch (error) {
    return error
  }
}

const steps = 'the template takes too many steps'
const long = 'a text is too long'
const deep = 'the template is nested too deeply'
const deepValue = 'a value is nested too deeply'
/** A list that has the list before it twice. */
const doubled =
  '{% set n = namespace(l=[1], m=[1]) %}' +
  '{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}'
const cyclic = '{% set l = [] %}{% set m = [l] %}{% do l.append(m) %}'
const letters = '{% set t = "a" * 1000000 %}'
const often = (body: string): string => `{% for a in range(99999) %}${body}{% endfor %}`

describe('JinjaTemplate: what costs too much', () => {
  it.each([
    ['a list that doubles, as text', `${doubled}{{ n.l }}`, steps],
    ['a list that doubles, as JSON', `${doubled}{{ n.l | tojson }}`, steps],
    ['lists that double, compared', `${doubled}{{ n.l == n.m }}{{ n.l < n.m }}`, steps],
    ['a list in itself, as text', `${cyclic}{{ l }}`, deepValue],
    ['a list in itself, as JSON', `${cyclic}{{ l | tojson }}`, deepValue],
    ['lists in each other, compared', `${cyclic}{{ l == m }}`, deepValue],
    ['filters of long lists', '{{ ([range(99999)] * 100) | map("sort") | list }}', steps],
    [
      'a method of a long text',
      `${letters}${often('{% if t.find("b") == 0 %}{% endif %}')}`,
      steps,
    ],
    ['a part of a long text', `${letters}${often('{% if "ab" in t %}{% endif %}')}`, steps],
    ['letters of a long text', `${letters}${often('{% if t[a] == "b" %}{% endif %}')}`, steps],
    ['a test of a long text', `${letters}${often('{% if t is upper %}{% endif %}')}`, steps],
    ['the space around a text', `{% set t = " " * 1000000 %}${often('{{ t.strip() }}')}`, steps],
    ['values in front of others', `{% set l = [] %}${often('{% do l.insert(0, 1) %}')}`, steps],
    ['a list with itself', `{% set l = [1] %}${often('{% do l.extend(l) %}')}`, steps],
    ['copies of a dict', `{% set d = {} %}${often('{% do d.update({a: d.copy()}) %}')}`, steps],
    ['one long expression', often(`{% if ${'1 == '.repeat(999)} 1 %}{% endif %}`), steps],
    ['a macro that doubles', '{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}', 'calls'],
    ['a width of indent', '{{ "a\nb" | indent(500000000) }}', long],
    ['an indent of tojson', '{{ [1, 2] | tojson(indent=200000000) }}', long],
    ['a separator', '{{ range(99999) | join("x" * 1000000) }}', long],
    ['a replacement', '{{ ("a" * 1000000) | replace("a", "b" * 1000000) }}', long],
    ['a format with a long value', '{{ ("{0}" * 300000).format("x" * 1000000) }}', steps],
    ['a default that calls its macro', '{% macro m(n=m()) %}{% endmacro %}{{ m() }}', 'calls'],
    ['many signs', `{{ ${'- '.repeat(20_000)} 1 }}`, deep],
    ['a long sum', `{{ 1 ${'+ 1'.repeat(20_000)} }}`, deep],
    ['blocks', '{% if 1 %}'.repeat(5000) + '{% endif %}'.repeat(5000), 'blocks are nested'],
    ['its source', `{# ${'x'.repeat(1 << 20)} #}`, 'the template is too long'],
  ])('%s', (_, source, message) => {
    const error = errorOf(source)
    expect(error).toBeInstanceOf(TemplateError)
    expect(error).toMatchObject({ message: expect.stringContaining(message), isRaised: false })
  })

  it('JinjaTemplate: a long but cheap template is rendered', () => {
    expect(errorOf('{{ range(99999) | unique | list | length }}')).toBe('99999')
    expect(errorOf('{{ ("a " * 400000).split() | length }}')).toBe('400000')
    expect(
      errorOf(
        '{% set l = [] %}{% do l.extend(range(99999)) %}{% do l.extend(l + l) %}{{ l | length }}',
      ),
    ).toBe('299997')
    expect(errorOf('{{ ("a" * 1000000)[:3] }}')).toBe('aaa')
  })

  it('JinjaTemplate: an expensive template is detected once when the model is loaded', () => {
    let renders = 0
    const count = (): Date => {
      renders++
      return now
    }
    const source = `{{ tools }}{{ strftime_now("") }}${often(often(''))}`
    const template = chat.createChatTemplate({ source, bos: '', eos: '', controls: [], now: count })
    expect([template.problem, renders]).toEqual([steps, 1])
  })
})

describe('JinjaTemplate: what is of JavaScript', () => {
  it.each([
    '{{ content.__proto__ }}{{ content["constructor"] }}{{ {}.constructor }}{{ [].__proto__ }}',
    '{{ range.constructor }}{{ range.call }}{{ range["__proto__"] }}{{ range.attributes }}',
    '{{ namespace().constructor }}{{ namespace().__proto__ }}{{ namespace().size }}',
    '{{ constructor }}{{ __proto__ }}{{ toString }}{{ [{}] | map(attribute="__proto__") | join }}',
    '{{ 1 | attr("constructor") }}{{ {} | attr("__proto__") }}{{ content | attr("length") }}',
  ])('JinjaTemplate: a member of JavaScript is undefined: %s', (source) => {
    expect(errorOf(source)).toBe('')
  })

  it.each([
    ['{{ "".constructor.constructor("return process")() }}', "has no attribute 'constructor'"],
    ['{{ 1 | constructor }}', "No filter named 'constructor'."],
    ['{{ 1 is __proto__ }}', "No test named '__proto__'."],
    ['{% constructor %}', "unknown tag 'constructor'"],
    ['{{ "x" | from_json }}', 'from_json: the text is no JSON'],
    [String.raw`{{ "\UFFFFFFFF" }}`, 'illegal Unicode character'],
  ])('JinjaTemplate: JavaScript members are an error of the template: %s', (source, message) => {
    const error = errorOf(source)
    expect(error).toBeInstanceOf(TemplateError)
    expect(error).toMatchObject({ message: expect.stringContaining(message) })
  })
})
