/**
 * Mutants of a source file: the same file with one small change that a test should notice. Only
 * changes that keep the file parsable are made; nothing is run here.
 */

import {
  isNode,
  lineAt,
  type SourceFile,
  type SyntaxNode,
  walk,
} from '../../test/tidy/source-file.ts'

/** One change of one file. Without a line number, it is still found after other edits. */
export interface MutantName {
  readonly path: string
  /** The function, method or variable around the change; empty at the top of a file. */
  readonly within: string
  /** The changed expression or statement, and its replacement, each on one line. */
  readonly before: string
  readonly after: string
}

export interface Mutant extends MutantName {
  readonly line: number
  /** The text of the whole file with the change. */
  readonly text: string
}

/** A part of the text, and its replacement. */
interface Change {
  readonly start: number
  readonly end: number
  readonly after: string
}

/** All mutants of a file, in the order of the syntax tree; no two have the same text. */
export function mutantsOf(file: SourceFile): Mutant[] {
  const mutants = new Map<string, Mutant>()
  const named: { readonly node: SyntaxNode; readonly name: string }[] = []
  walk(file, (node, parent, property) => {
    const name = nameOf(node)
    if (name !== undefined) named.push({ node, name })
    for (const change of changesOf(file.text, { node, parent, property })) {
      const { start, end, after } = change
      const text = file.text.slice(0, start) + after + file.text.slice(end)
      if (mutants.has(text)) continue
      mutants.set(text, {
        path: file.path,
        line: lineAt(file, start),
        within: named.findLast((one) => isInside(change, one.node))?.name ?? '',
        before: onOneLine(file.text.slice(start, end)),
        after: onOneLine(after),
        text,
      })
    }
  })
  return [...mutants.values()]
}

const isInside = (inner: Change, outer: SyntaxNode): boolean =>
  outer.start <= inner.start && inner.end <= outer.end

const onOneLine = (text: string): string => text.replace(/\s+/g, ' ')

function nameOf(node: SyntaxNode): string | undefined {
  const names: Readonly<Record<string, unknown>> = {
    FunctionDeclaration: node['id'],
    ClassDeclaration: node['id'],
    VariableDeclarator: node['id'],
    MethodDefinition: node['key'],
    PropertyDefinition: node['key'],
  }
  const name = names[node.type]
  return isNode(name) && typeof name['name'] === 'string' ? name['name'] : undefined
}

interface Position {
  readonly node: SyntaxNode
  readonly parent: SyntaxNode | null
  readonly property: string
}

function changesOf(text: string, position: Position): Change[] {
  const { node } = position
  const make = makers[node.type]
  const own = make === undefined ? [] : make(node, text, position)
  const { body, returnType } = node
  return isBoolean(returnType) && isNode(body) ? [...own, ...constantsFor(body)] : own
}

type Maker = (node: SyntaxNode, text: string, position: Position) => Change[]

/** Functions that make changes, by the type of the changed syntax node. */
const makers: Readonly<Record<string, Maker>> = {
  LogicalExpression: (node, text) => [
    replace(node, textOf(node['left'], text)),
    replace(node, textOf(node['right'], text)),
  ],
  BinaryExpression: otherOperator,
  AssignmentExpression: otherOperator,
  UpdateExpression: (node, text, { property }) =>
    // Loops that never end would take most of the time.
    property === 'update' ? [] : [replace(node, swapSign(textOf(node, text)))],
  UnaryExpression: (node, text) =>
    node['operator'] === '!' ? [replace(node, textOf(node['argument'], text))] : [],
  IfStatement: (node, text) => [
    ...negate(node['test'], text),
    ...(isGuard(node) ? [replace(node['test'], 'false')] : []),
  ],
  ConditionalExpression: (node, text) => negate(node['test'], text),
  WhileStatement: (node, text) => negate(node['test'], text),
  ExpressionStatement: (node) => (isCall(node['expression']) ? [replace(node, ';')] : []),
  Literal: (node, text, { parent }) =>
    typeof node['value'] === 'boolean' && parent !== null && parent.type !== 'TSLiteralType'
      ? [replaceWithin(parent, node, String(!node['value']), text)]
      : [],
}

const otherOperators: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '-': '+',
  '+=': '-=',
  '-=': '+=',
}

function otherOperator(node: SyntaxNode, text: string): Change[] {
  const { operator, left, right } = node
  const other = otherOperators[String(operator)]
  if (other === undefined || !isNode(left) || !isNode(right)) return []
  const between = text.slice(left.end, right.start).replace(String(operator), other)
  return [replace(node, textOf(left, text) + between + textOf(right, text))]
}

const swapSign = (text: string): string =>
  text.includes('++') ? text.replace('++', '--') : text.replace('--', '++')

/** Negates a condition. Skips `===` and `!`, because the changes of these operators do the same. */
function negate(test: unknown, text: string): Change[] {
  if (!isNode(test)) return []
  const { type, operator } = test
  const isOther = type === 'UnaryExpression' || operator === '===' || operator === '!=='
  return isOther ? [] : [replace(test, `!(${textOf(test, text)})`)]
}

/** Whether the node is `if (…) return`, `throw`, `continue` or `break`, without `else`. */
function isGuard({ consequent, alternate }: SyntaxNode): boolean {
  if (alternate !== null || !isNode(consequent)) return false
  return /^(?:Return|Throw|Continue|Break)Statement$/.test(consequent.type)
}

function isCall(expression: unknown): boolean {
  if (!isNode(expression)) return false
  if (expression.type === 'AwaitExpression' || isVoid(expression)) {
    return isCall(expression['argument'])
  }
  const { callee } = expression
  return expression.type === 'CallExpression' && isNode(callee) && callee.type !== 'Super'
}

const isVoid = ({ type, operator }: SyntaxNode): boolean =>
  type === 'UnaryExpression' && operator === 'void'

function isBoolean(returnType: unknown): boolean {
  if (!isNode(returnType) || !isNode(returnType['typeAnnotation'])) return false
  return /^TS(?:BooleanKeyword|TypePredicate)$/.test(returnType['typeAnnotation'].type)
}

/** Replaces the value of a function's last `return`, or of its only expression, by constants. */
function constantsFor(body: SyntaxNode): Change[] {
  const statements = body.type === 'BlockStatement' ? (body['body'] as SyntaxNode[]) : []
  const last = statements.at(-1)
  const returned = last === undefined ? body : last['argument']
  if (!isNode(returned) || /^(?:BlockStatement|Literal)$/.test(returned.type)) return []
  return [replace(returned, 'true'), replace(returned, 'false')]
}

function replace(node: unknown, after: string): Change {
  if (!isNode(node)) throw new Error(`expected a syntax node, got ${String(node)}`)
  return { start: node.start, end: node.end, after }
}

/** Replaces the outer node by itself with the inner one changed, which names the change better. */
function replaceWithin(outer: SyntaxNode, inner: SyntaxNode, after: string, text: string): Change {
  const [before, behind] = [text.slice(outer.start, inner.start), text.slice(inner.end, outer.end)]
  return replace(outer, before + after + behind)
}

function textOf(node: unknown, text: string): string {
  if (!isNode(node)) throw new Error(`expected a syntax node, got ${String(node)}`)
  return text.slice(node.start, node.end)
}
