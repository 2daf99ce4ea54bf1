/** Sizes, names and shapes that every file keeps to. */

import {
  codeIn,
  dottedName,
  lineAt,
  parse,
  type SourceFile,
  violation,
  walk,
} from './source-file.ts'

const maxLineLength = 100
const maxFunctionLines = 60
const maxFileLines = 500
const maxTestLines = 500
const maxFiles = 15

const code = (files: readonly SourceFile[]): SourceFile[] =>
  codeIn(files, 'src', 'test', 'bench', 'examples', 'scripts')

const linesOf = (file: SourceFile): string[] => file.text.replace(/\n$/, '').split('\n')

export function longFiles(files: readonly SourceFile[]): string[] {
  return code(files).flatMap((file) => {
    const limit = file.path.startsWith('test/') ? maxTestLines : maxFileLines
    const { length } = linesOf(file)
    return length > limit ? [`${file.path}:${length}: longer than ${limit} lines`] : []
  })
}

/** Folders under `src` with more files directly in them than a reader can survey. */
export function fullFolders(files: readonly SourceFile[]): string[] {
  const folders = Map.groupBy(codeIn(files, 'src'), ({ path }) =>
    path.split('/').slice(0, -1).join('/'),
  )
  return Array.from(folders).flatMap(([folder, { length }]) => {
    if (length <= maxFiles) return []
    return [`${folder}:1: ${length} files, at most ${maxFiles}: a sub-folder is missing`]
  })
}

export function longLines(files: readonly SourceFile[]): string[] {
  return code(files).flatMap((file) =>
    linesOf(file).flatMap((line, at) => {
      const { length } = Array.from(line)
      if (length <= maxLineLength) return []
      return [`${file.path}:${at + 1}: ${length} characters, at most ${maxLineLength}`]
    }),
  )
}

/** Tests are exempt: a `describe` is a function only by its syntax. */
export function longFunctions(files: readonly SourceFile[]): string[] {
  const functions = /^(?:FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/
  return codeIn(files, 'src', 'bench', 'examples', 'scripts').flatMap((file) => {
    const found: string[] = []
    walk(file, (node) => {
      if (!functions.test(node.type)) return
      const lines = lineAt(file, node.end) - lineAt(file, node.start) + 1
      if (lines <= maxFunctionLines) return
      found.push(violation(file, node.start, `function of ${lines} lines, at most 60`))
    })
    return found
  })
}

export function unparsable(files: readonly SourceFile[]): string[] {
  return code(files).flatMap((file) =>
    parse(file).errors.map((error) => `${file.path}:1: ${error.message}`),
  )
}

export function defaultExports(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src', 'test').flatMap((file) => {
    const found: string[] = []
    walk(file, (node, _, property) => {
      const isNamedDefault = property === 'exported' && dottedName(node) === 'default'
      if (node.type !== 'ExportDefaultDeclaration' && !isNamedDefault) return
      found.push(violation(file, node.start, 'default export; name it'))
    })
    return found
  })
}

/** Folders in which an unhandled error would end the tasks of other sessions. */
const handlesAll = /^src\/(?:cluster\/|hpc\/agents\/|cli\/agent\.ts)/

/** `void` before a promise hides an unhandled rejection from the linter. */
export function droppedPromises(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) => {
    const found: string[] = []
    if (!handlesAll.test(file.path)) return found
    walk(file, (node) => {
      if (node.type !== 'UnaryExpression' || node['operator'] !== 'void') return
      found.push(violation(file, node.start, '`void`: handle the rejection, or use a block'))
    })
    return found
  })
}

const ownOnce = /\b\w*(?:clos|stopp|start|end|releas)(?:ing|ed) \?\?= [^\n;]*\(/g

/** A start or stop that several callers share is made by `once`, and by nothing else. */
export function ownOnces(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) =>
    Array.from(file.text.matchAll(ownOnce), ({ index }) =>
      violation(file, index, 'use `once` of foundation/service.ts'),
    ),
  )
}

/** Names that say nothing, and names that are not kebab-case. */
export function emptyNames(files: readonly SourceFile[]): string[] {
  return code(files).flatMap(({ path }) => {
    const name = path.split('/').at(-1) ?? ''
    const stem = name.replace(/(?:\.test|\.long|\.hpc|\.bench|\.d)?\.m?[jt]sx?$/, '')
    if (/^(?:utils?|helpers?|common|misc|types?)$/.test(stem)) {
      return [`${path}:1: "${stem}" does not say what is in it`]
    }
    return /^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(stem) ? [] : [`${path}:1: not kebab-case`]
  })
}

/** Each source file opens with what it is. */
export function missingOpenings(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) => {
    const text = file.text.replace(/^#!.*\n/, '')
    const opening = /^\/\*\*([\s\S]*?)\*\//
      .exec(text)?.[1]
      ?.replace(/\s*\n\s*\*/g, '')
      .trim()
    return opening?.endsWith('.') === true
      ? []
      : [`${file.path}:1: must open with a sentence in /** … */`]
  })
}

/** A comment on a name that stands before another comment: it is about nothing. */
export function strayComments(files: readonly SourceFile[]): string[] {
  return codeIn(files, 'src').flatMap((file) =>
    Array.from(file.text.matchAll(/\*\/\n\s*\/\*\*/g))
      .filter(({ index }) => file.text.slice(0, index).includes('*/'))
      .map(({ index }) => violation(file, index, 'a comment that is about nothing')),
  )
}

/** Folders of tests whose subject is no folder of `src`: clients of others, and the simulation. */
const besidesTheMirror = ['inference/server/clients', 'simulation']

/** A test lives in the folder that its subject has in `src`. */
export function straysFromTheMirror(files: readonly SourceFile[]): string[] {
  const folders = new Set(codeIn(files, 'src').flatMap(({ path }) => ancestorsOf(path.slice(4))))
  for (const folder of besidesTheMirror) folders.add(folder)
  return codeIn(files, 'test').flatMap(({ path }) => {
    if (!path.endsWith('.test.ts')) return []
    const folder = path.slice('test/'.length).split('/').slice(0, -1).join('/')
    return folder === '' || folders.has(folder) ? [] : [`${path}:1: there is no src/${folder}`]
  })
}

function ancestorsOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, at) => parts.slice(0, at + 1).join('/'))
}
