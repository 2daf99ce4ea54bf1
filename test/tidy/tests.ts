/** Rules for test files alone: what a test may not do, however well it passes. */

import { codeIn, dottedName, isNode, type SourceFile, violation, walk } from './source-file.ts'

/** The files that choose seeds and counts for all the others. */
const choosers = new Set(['test/property.ts', 'test/long-run.ts'])

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

/** Cases drawn without a seed that can be repeated, and counts chosen without `byRun`. */
export function unseededTests(files: readonly SourceFile[]): string[] {
  const instead: Readonly<Record<string, string>> = {
    'Math.random': 'createRandom(chooseSeed())',
    'fc.assert': 'assertProperty',
    'fc.check': 'assertProperty',
    'fc.sample': 'assertProperty',
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
