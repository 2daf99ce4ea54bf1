import { readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { parse, type SourceFile } from './tidy/source-file.ts'

function readSource(path: string): SourceFile {
  const root = new URL('../', import.meta.url)
  return { path, text: readFileSync(fileURLToPath(new URL(path, root)), 'utf8') }
}

interface Passed {
  readonly name: string
  readonly path: string
}

/** The names that a file passes on, each with the file that declares it. */
function passedOnBy(path: string): Passed[] {
  const { staticExports } = parse(readSource(path)).module
  return staticExports.flatMap(({ entries }) =>
    entries.flatMap(({ exportName, moduleRequest }) => {
      if (moduleRequest === null || exportName.name === null) return []
      const from = posix.join(posix.dirname(path), moduleRequest.value)
      const further = passedOnBy(from).find(({ name }) => name === exportName.name)
      return [further ?? { name: exportName.name, path: from }]
    }),
  )
}

/** Whether a comment stands right before the name's declaration. A file's first one does not. */
function isExplained({ text }: SourceFile, name: string): boolean {
  const kinds = '(?:abstract )?(?:class|interface|type|const|let|(?:async )?function)'
  return new RegExp(`\\*/\\nexport (?:declare )?${kinds} ${name}\\b`).test(text)
}

describe('what a user can import', () => {
  it.each([
    'src/index.ts',
    'src/inference/index.ts',
    'src/workflow/index.ts',
    'src/cluster/index.ts',
    'src/hpc/index.ts',
    'src/testing/index.ts',
  ])('an exported name is explained where it is declared: %s', (entryPoint) => {
    const names = passedOnBy(entryPoint)
    expect(names.length).toBeGreaterThan(5)
    const unexplained = names.filter(({ name, path }) => !isExplained(readSource(path), name))
    expect(unexplained).toEqual([])
  })
})
