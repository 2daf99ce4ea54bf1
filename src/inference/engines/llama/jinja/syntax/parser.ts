/** Parses a template into statements. Unknown tags are an error at load time. */

import { ExpressionParser } from './expression-parser.ts'
import { scan } from './lexer.ts'
import type { Body, Expression, NamedCall, Parameter, Statement, Target } from './nodes.ts'
import { TemplateError } from '../limits.ts'

/** Throws a `TemplateError`, with the line number if known. */
export function parseTemplate(source: string): Body {
  const parser = new StatementParser(new ExpressionParser(scan(source)))
  return parser.parse()
}

/**
 * The maximum nesting of blocks, all of which a name is looked up in. Python allows twenty loops.
 */
const maxDepth = 100

class StatementParser {
  readonly #tokens: ExpressionParser
  readonly #statements: Readonly<Record<string, () => Statement>>
  #depth = 0

  constructor(tokens: ExpressionParser) {
    this.#tokens = tokens
    this.#statements = {
      if: () => this.#if(),
      for: () => this.#for(),
      set: () => this.#set(),
      macro: () => this.#macro(),
      call: () => this.#callBlock(),
      filter: () => this.#filterBlock(),
      with: () => this.#with(),
      generation: () => this.#generation(),
      do: () => this.#do(),
      break: () => this.#jump('break'),
      continue: () => this.#jump('continue'),
    }
  }

  parse(): Body {
    const { body, end } = this.#body([])
    if (end !== null) throw new TemplateError(`unexpected '${end}'`)
    return body
  }

  /** Parses up to a tag with one of the names, but not the rest of that tag. */
  #body(ends: readonly string[]): { readonly body: Body; readonly end: string | null } {
    if (++this.#depth > maxDepth) throw new TemplateError('blocks are nested too deeply')
    const body: Statement[] = []
    const tokens = this.#tokens
    while (tokens.current !== undefined) {
      if (tokens.is('text')) body.push({ kind: 'text', text: tokens.advance().text })
      else if (tokens.skip('begin', '{{')) {
        body.push({ kind: 'output', value: tokens.parseTuple() })
        tokens.expect('end', '}}')
      } else {
        tokens.expect('begin', '{%')
        const name = tokens.expect('name')
        if (ends.includes(name)) {
          this.#depth--
          return { body, end: name }
        }
        body.push(this.#statement(name))
      }
    }
    if (ends.length > 0) throw new TemplateError(`'${ends.at(-1)}' is missing`)
    return { body, end: null }
  }

  #statement(name: string): Statement {
    const parse = Object.hasOwn(this.#statements, name) ? this.#statements[name] : undefined
    if (parse === undefined) throw new TemplateError(`unknown tag '${name}'`)
    return parse()
  }

  #close(): void {
    this.#tokens.expect('end', '%}')
  }

  /** Parses a body up to its end tag. */
  #block(end: string): Body {
    const { body } = this.#body([end])
    this.#close()
    return body
  }

  #if(): Statement {
    const branches: { test: Expression | null; body: Body }[] = []
    let test: Expression | null = this.#tokens.parseTuple()
    for (;;) {
      this.#close()
      const { body, end } = this.#body(test === null ? ['endif'] : ['elif', 'else', 'endif'])
      branches.push({ test, body })
      if (end === 'endif') break
      test = end === 'elif' ? this.#tokens.parseTuple() : null
    }
    this.#close()
    return { kind: 'if', branches }
  }

  #for(): Statement {
    const tokens = this.#tokens
    const target = this.#target()
    tokens.expect('name', 'in')
    const items = tokens.parseTuple(false)
    const test = tokens.skip('name', 'if') ? tokens.parse() : null
    const isRecursive = tokens.skip('name', 'recursive')
    this.#close()
    const { body, end } = this.#body(['else', 'endfor'])
    this.#close()
    const otherwise = end === 'else' ? this.#block('endfor') : []
    return { kind: 'for', target, items, test, body, otherwise, isRecursive }
  }

  #target(): Target {
    const first = this.#oneTarget()
    if (!this.#tokens.is('sign', ',')) return first
    const targets = [first]
    while (this.#tokens.skip('sign', ',')) {
      if (!this.#tokens.is('name') && !this.#tokens.is('sign', '(')) break
      targets.push(this.#oneTarget())
    }
    return { kind: 'tuple', targets }
  }

  #oneTarget(): Target {
    const tokens = this.#tokens
    if (tokens.skip('sign', '(')) {
      const inner = this.#target()
      tokens.expect('sign', ')')
      return inner
    }
    const name = tokens.expect('name')
    if (!tokens.skip('sign', '.')) return { kind: 'name', name }
    return { kind: 'member', of: name, name: tokens.expect('name') }
  }

  #set(): Statement {
    const tokens = this.#tokens
    const target = this.#target()
    if (tokens.skip('sign', '=')) {
      const value = tokens.parseTuple()
      this.#close()
      return { kind: 'set', target, value }
    }
    const filters: NamedCall[] = []
    while (tokens.skip('sign', '|')) filters.push(tokens.parseFilter())
    this.#close()
    return { kind: 'set-block', target, filters, body: this.#block('endset') }
  }

  #macro(): Statement {
    const name = this.#tokens.expect('name')
    const parameters = this.#parameters()
    this.#close()
    return { kind: 'macro', name, parameters, body: this.#block('endmacro') }
  }

  #parameters(): readonly Parameter[] {
    const tokens = this.#tokens
    tokens.expect('sign', '(')
    return tokens.parseList(')', () => {
      const name = tokens.expect('name')
      return { name, byDefault: tokens.skip('sign', '=') ? tokens.parse() : null }
    })
  }

  #callBlock(): Statement {
    const parameters = this.#tokens.is('sign', '(') ? this.#parameters() : []
    const call = this.#tokens.parse()
    this.#close()
    return { kind: 'call-block', call, parameters, body: this.#block('endcall') }
  }

  #filterBlock(): Statement {
    const filters = [this.#tokens.parseFilter()]
    while (this.#tokens.skip('sign', '|')) filters.push(this.#tokens.parseFilter())
    this.#close()
    return { kind: 'filter-block', filters, body: this.#block('endfilter') }
  }

  #with(): Statement {
    const tokens = this.#tokens
    const values: (readonly [Target, Expression])[] = []
    while (!tokens.is('end')) {
      if (values.length > 0) tokens.expect('sign', ',')
      const target = this.#oneTarget()
      tokens.expect('sign', '=')
      values.push([target, tokens.parse()])
    }
    this.#close()
    return { kind: 'with', values, body: this.#block('endwith') }
  }

  /** The tag marks assistant text for training and has no effect on the output. */
  #generation(): Statement {
    this.#close()
    return { kind: 'with', values: [], body: this.#block('endgeneration') }
  }

  #do(): Statement {
    const value = this.#tokens.parseTuple()
    this.#close()
    return { kind: 'do', value }
  }

  #jump(kind: 'break' | 'continue'): Statement {
    this.#close()
    return { kind }
  }
}
