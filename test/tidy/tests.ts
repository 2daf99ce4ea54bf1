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

/** A title of a test, a suite or a check of the package that names rows of `docs/faults.md`. */
interface RowTitle {
  readonly file: SourceFile
  readonly start: number
  readonly rows: readonly number[]
  readonly text: string
}

/** Titles that start with `row N: ` or `rows N and M: `. */
function rowTitles(files: readonly SourceFile[]): RowTitle[] {
  const titled = [...codeIn(files, 'test'), ...codeIn(files, 'scripts')]
  return titled.flatMap((file) => {
    const found: RowTitle[] = []
    if (file.path.startsWith('test/tidy')) return found
    walk(file, (node) => {
      const text = textOf(node)
      const [, numbers, rest = ''] = /^rows? (\d[\d, and]*)([^]*)$/.exec(text ?? '') ?? []
      if (numbers === undefined) return
      const rows = Array.from(numbers.matchAll(/\d+/g), ([digits]) => Number(digits))
      found.push({ file, start: node.start, rows, text: rest })
    })
    return found
  })
}

/** The text of a string or a template; what a template inserts counts as a word. */
function textOf(node: SyntaxNode): string | undefined {
  if (node.type === 'Literal' && typeof node['value'] === 'string') return node['value']
  if (node.type !== 'TemplateLiteral') return undefined
  const quasis = node['quasis'] as readonly { readonly value: { readonly cooked: string } }[]
  return quasis.map(({ value }) => value.cooked).join('x')
}

/** Titles with a row number that say nothing else. */
export function bareRowTitles(files: readonly SourceFile[]): string[] {
  return rowTitles(files)
    .filter(({ text }) => !/^: \S/.test(text) || text.trim().split(/\s+/).length < 3)
    .map(({ file, start }) => violation(file, start, 'a row number needs a sentence beside it'))
}

/** Rows of `docs/faults.md` without a test or a reason, and titles with a row that is not there. */
export function untestedFaults(files: readonly SourceFile[]): string[] {
  const path = 'docs/faults.md'
  const page = files.find((file) => file.path === path)
  const rows = Array.from((page?.text ?? '').matchAll(/^\| (\d+) \|.*\| ([^|]+) \|$/gm))
  const tested = new Set(rowTitles(files).flatMap((title) => title.rows))
  const unknown = rowTitles(files)
    .filter(
      (title) => !title.rows.every((row) => rows.some(([, number]) => Number(number) === row)),
    )
    .map(({ file, start }) => violation(file, start, `names a row that is not in ${path}`))
  const wrong = rows.flatMap(([, number, verdict = '']) => {
    const expected = tested.has(Number(number)) ? /^yes$/ : /^not tested: \S/
    if (expected.test(verdict)) return []
    const problem = tested.has(Number(number)) ? 'has a test' : 'has no test'
    return [`${path}:1: row ${number} ${problem}, but says "${verdict}"`]
  })
  return [...unknown, ...wrong]
}

/** Words that begin a title only where its subject is missing. */
const finiteVerbs = new Set(
  `is are was were has have had does do did can cannot may must will never also again accepts adds
  allows asks avoids becomes begins behaves cancels chooses clears closes collects completes
  contains delivers describes differs discards distributes emits encodes ends enforces
  evaluates exits fails finds finishes follows forgets gets gives goes grows ignores infers inherits
  joins keeps knows leaves lets loses makes measures names needs omits parses passes puts reads
  receives redacts reduces refills refuses rejects removes renders repeats replaces resolves
  restarts restores retries returns runs says sends separates serves sets shortens shows splits
  spreads stands starts stays stops suggests takes tells throws translates tries uses waits wakes
  wants warns works wraps writes yields`.split(/\s+/),
)
/** A word in -s is a verb before one of these, and may be a plural before any other word. */
const objects =
  /^[a-z]+s (?:an?|the|no|its?|each|every|all|any|what|nothing|one|both|only|them|up|out)\b/
/** Words that put an object, or a clause, in the place of the subject. */
const openings = /^(?:of|what|who|whose|that|which|and|or|its?|they|their|them) /
/** Plurals that begin a sentence, such as `starts that fail …`, although verbs look like them. */
const plurals =
  /^[a-z]+s (?:that|of|which|whose|with|without|in|and|are|is|were|while|written|within)\b/

/** Titles of tests without a subject. The `describe` around a test does not count. */
export function titlesWithoutSubject(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'test').flatMap((file) => {
    const found: string[] = []
    walk(file, (node) => {
      if (node.type !== 'CallExpression' || !/^(?:it|test|needs)\b/.test(calleeName(node))) return
      const [title] = node['arguments'] as unknown[]
      const text = isNode(title) ? textOf(title)?.replace(/^rows? \d[\d, and]*: /, '') : undefined
      if (text === undefined || !lacksSubject(text)) return
      found.push(violation(file, node.start, `"${text}" does not say who or what does it`))
    })
    return found
  })
}

function lacksSubject(title: string): boolean {
  if (openings.test(title) || objects.test(title)) return true
  const [word = ''] = title.split(/[ ,:]/, 1)
  return finiteVerbs.has(word) && !plurals.test(title) && !title.startsWith(`${word}:`)
}
