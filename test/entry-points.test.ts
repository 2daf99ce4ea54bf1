import { readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { compileOutside } from './compile-outside.ts'
import { parse, type SourceFile, type SyntaxNode } from './tidy/source-file.ts'

function readSource(path: string): SourceFile {
  const root = new URL('../', import.meta.url)
  return { path, text: readFileSync(fileURLToPath(new URL(path, root)), 'utf8') }
}

/** Each import of the package, such as `tutti/workflow`, with its source file. */
const entryPoints = Object.entries(
  (JSON.parse(readSource('package.json').text) as { exports: Record<string, unknown> }).exports,
).flatMap(([path, target]) => {
  const { types } = Object(target) as { readonly types?: string }
  if (types === undefined) return []
  const source = types.replace('./dist/', 'src/').replace('.d.ts', '.ts')
  return [[posix.join('tutti', path), source] as const]
})

interface Passed {
  readonly name: string
  readonly path: string
  readonly isType: boolean
}

/** The names that a file passes on, each with the file that declares it. */
function passedOnBy(path: string): Passed[] {
  const { staticExports } = parse(readSource(path)).module
  return staticExports.flatMap(({ entries }) =>
    entries.flatMap(({ exportName, moduleRequest, isType }) => {
      if (moduleRequest === null) return []
      const from = posix.join(posix.dirname(path), moduleRequest.value)
      const { name } = exportName
      if (name === null) return declarationsIn(from).map((one) => ({ ...one, path: from, isType }))
      const further = passedOnBy(from).find((one) => one.name === name)
      return [{ name, path: further?.path ?? from, isType }]
    }),
  )
}

interface Declaration {
  readonly name: string
  readonly kind: string
  readonly typeParameters: number
}

/** The classes, functions, types and constants that a file exports. */
function declarationsIn(path: string): Declaration[] {
  const body = parse(readSource(path)).program.body as unknown as readonly SyntaxNode[]
  return body.flatMap((node) => {
    const { declaration } = node as { readonly declaration?: SyntaxNode | null }
    if (node.type !== 'ExportNamedDeclaration' || !declaration) return []
    const { declarations = [declaration], typeParameters } = declaration as unknown as {
      readonly declarations?: readonly { readonly id: { readonly name: string } }[]
      readonly typeParameters?: { readonly params: readonly unknown[] } | null
    }
    return (declarations as readonly { readonly id: { readonly name: string } }[]).map(
      ({ id }) => ({
        name: id.name,
        kind: declaration.type,
        typeParameters: typeParameters?.params.length ?? 0,
      }),
    )
  })
}

const constructed = new Set(['ComputeTask', 'AITask', 'Session'])

/**
 * A program that exports, without a type annotation, an object with the arguments and result of
 * every public function and method, with every public field, and with the options of the classes
 * that users construct.
 */
function createConsumer(): string {
  const lines = entryPoints.flatMap(([specifier, source], at) => {
    const all = `entry${at}`
    const shapes = passedOnBy(source).flatMap(({ name, path, isType }) =>
      declarationsIn(path)
        .filter((one) => one.name === name)
        .flatMap(({ kind, typeParameters }) => {
          const isClass = kind === 'ClassDeclaration'
          const isOnlyType = kind.startsWith('TS')
          const list = typeParameters === 0 ? '' : `<${Array(typeParameters).fill('any').join()}>`
          const values = isClass ? [`${all}.${name}`] : [`{ it: ${all}.${name} }`]
          return [
            ...(isClass || isOnlyType ? [`null! as ${all}.${name}${list}`] : []),
            ...(isType || isOnlyType ? [] : values),
            ...(constructed.has(name) ? [`{ it: argumentsOf(${all}.${name}) }`] : []),
          ]
        }),
    )
    const consts = [...new Set(shapes)].map(
      (shape, index) => `export const ${all}Shape${index} = shapeOf(${shape})`,
    )
    return [`import * as ${all} from '${specifier}'`, ...consts]
  })
  return `
    // Types of these packages are written as imports of them.
    import '@opentelemetry/resources'
    import '@opentelemetry/sdk-metrics'
    import '@opentelemetry/sdk-trace'

    declare function shapeOf<T>(value: T): {
      [K in keyof T & string]: T[K] extends (...args: infer A) => infer R
        ? { args: A; result: R }
        : T[K]
    }
    declare function argumentsOf<A extends readonly unknown[]>(
      type: new (...args: A) => unknown,
    ): (...args: A) => void
    ${lines.join('\n')}
  `
}

/** Whether a comment stands right before the name's declaration. A file's first one does not. */
function isExplained({ text }: SourceFile, name: string): boolean {
  const kinds = '(?:abstract )?(?:class|interface|type|const|let|(?:async )?function)'
  return new RegExp(`\\*/\\nexport (?:declare )?${kinds} ${name}\\b`).test(text)
}

describe('what a user can import', () => {
  it.each(entryPoints)('an exported name of %s is explained where it is declared', (_, source) => {
    const names = passedOnBy(source)
    expect(names.length).toBeGreaterThan(4)
    const unexplained = names.filter(({ name, path }) => !isExplained(readSource(path), name))
    expect(unexplained).toEqual([])
  })

  it('a user can name every type that a public signature mentions in declarations', async () => {
    const consumer = createConsumer()
    expect(consumer.split('shapeOf(').length).toBeGreaterThan(200)
    const folder = await compileOutside(new Map([['consumer.ts', consumer]]))
    const declarations = readFileSync(posix.join(folder, 'out/consumer.d.ts'), 'utf8')
    expect(declarations).toContain('CloseOptions')
    expect(declarations).not.toContain('tutti/dist')
  })
})
