/** Rules for test files alone: what a test may not do, however well it passes. */

import {
  codeIn,
  dottedName,
  isNode,
  type SourceFile,
  type SyntaxNode,
  violation,
  walk,
} from './source-file.ts'

/** The files that choose seeds, counts and time limits for all the others. */
const choosers = new Set(['test/property.ts', 'test/long-run.ts', 'test/eventually.ts'])

/** `it.skip`, `describe.only`, `test.todo` and the like, also in chains. */
export function testsPutAside(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'test').flatMap((file) => {
    const found: string[] = []
    walk(file, (node) => {
      if (node.type !== 'MemberExpression' || !isNode(node['property'])) return
      const name = dottedName(node) ?? ''
      if (!/^(?:it|test|describe|suite)\b.*\.(?:skip|only|todo|fails)$/.test(name)) return
      found.push(violation(file, node.start, `${name} puts tests aside`))
    })
    return found
  })
}

/** A `return` without a value in a test or a property: it skips the assertions below. */
export function earlyReturns(files: readonly SourceFile[]): string[] {
  const starters = /^(?:it|test|needs|fc\.property|fc\.asyncProperty)\b/
  return codeIn(files, 'test').flatMap((file) => {
    const found: string[] = []
    const bodies = new Set<unknown>()
    // Parents come first, so that a test's body is known before its statements.
    const owners = new Map<SyntaxNode, unknown>()
    walk(file, (node, parent) => {
      const owner = /Function/.test(node.type) ? node : owners.get(parent ?? node)
      owners.set(node, owner)
      if (node.type === 'CallExpression' && starters.test(calleeName(node))) {
        for (const argument of node['arguments'] as unknown[]) bodies.add(argument)
      }
      if (node.type !== 'ReturnStatement' || isNode(node['argument'])) return
      if (!bodies.has(owner)) return
      found.push(violation(file, node.start, 'skips the assertions below it'))
    })
    return found
  })
}

/** `it` for `it(…)`, `it.each(…)(…)` and `needs(…)(…)`. */
function calleeName(call: SyntaxNode): string {
  const callee = call['callee']
  if (!isNode(callee)) return ''
  if (callee.type === 'CallExpression') return calleeName(callee)
  return dottedName(callee) ?? ''
}

/** Cases, counts and time limits that a test chooses for itself. */
export function ownChoices(files: readonly SourceFile[]): string[] {
  const instead: Readonly<Record<string, string>> = {
    'Math.random': 'createRandom(chooseSeed())',
    'fc.assert': 'assertProperty',
    'fc.check': 'assertProperty',
    'fc.sample': 'assertProperty',
    'vi.waitFor': 'eventually',
    'vi.waitUntil': 'eventually',
  }
  return codeIn(files, 'test').flatMap((file) => {
    const found: string[] = []
    if (choosers.has(file.path)) return []
    walk(file, (node) => {
      const name = node.type === 'MemberExpression' ? dottedName(node) : undefined
      const better = name === undefined ? undefined : instead[name]
      if (better !== undefined) found.push(violation(file, node.start, `${name}; use ${better}`))
      const property = node.type === 'MemberExpression' ? node['property'] : undefined
      if (isNode(property) && property['value'] === 'TUTTI_LONG') {
        found.push(violation(file, node.start, 'TUTTI_LONG; use byRun'))
      }
    })
    return found
  })
}
