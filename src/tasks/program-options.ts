/** Validates the options of a program, and derives its default name. Starts nothing. */

import { statSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { messageOf, ValueError } from '../foundation/errors.ts'
import { expectKnownKeys, expectObject, expectString, invalid } from '../foundation/options.ts'
import type { ProgramSpec } from './spec.ts'

/** The maximum number of bytes in one argument. Linux rejects more with E2BIG. */
const maxArgumentLength = 131_071
/** The maximum number of bytes in all arguments together. */
const maxArgumentsLength = 1_048_576

export function expectArguments(given: unknown): readonly string[] {
  if (!Array.isArray(given)) throw invalid('arguments', 'an array of strings', given)
  let total = 0
  const checked = given.map((argument: unknown, at) => {
    const field = `arguments[${at}]`
    if (typeof argument !== 'string') throw invalid(field, 'a string', argument)
    const bytes = Buffer.byteLength(argument)
    if (bytes > maxArgumentLength) throw tooLongError(field, bytes)
    total += bytes + 1
    return expectNoNul(field, argument)
  })
  if (total > maxArgumentsLength) throw tooLongError('arguments', total)
  return Object.freeze(checked)
}

function tooLongError(field: string, bytes: number): ValueError {
  const text = `${Math.ceil(bytes / 1024)} KB exceed the maximum size of arguments (ARG_MAX)`
  return new ValueError(`${field}: ${text}; use a file or stdin`, { field })
}

function expectNoNul(field: string, text: string): string {
  if (!text.includes('\u0000')) return text
  throw new ValueError(`${field}: contains NUL`, { field, expected: 'text without NUL', got: text })
}

/** Expects a string without NUL characters, which system calls reject in paths. */
export const expectPath = (field: string, value: unknown): string =>
  expectNoNul(field, expectString(field, value))

/** Returns the absolute path of a work folder, which must exist. */
export function expectWorkDir(workDir: unknown): string {
  const folder = resolve(expectPath('workDir', workDir))
  const details = { field: 'workDir', expected: 'a folder', got: workDir }
  let isFolder
  try {
    isFolder = statSync(folder).isDirectory()
  } catch (cause) {
    const text = `workDir: ${folder} cannot be used: ${messageOf(cause)}`
    throw new ValueError(text, { ...details, cause })
  }
  if (isFolder) return folder
  throw new ValueError(`workDir: ${folder} is not a folder`, details)
}

/**
 * Matches batch files. Windows runs them through its shell, which would interpret the arguments.
 */
const batchFile = /\.(?:bat|cmd)[. ]*$/i

/** Rejects batch files on Windows, unless the task sets `shell`. */
export function expectNoBatchFile(executable: string, isShell: boolean, platform: string): void {
  if (platform !== 'win32' || isShell || !batchFile.test(executable)) return
  throw new ValueError(`executable: "${executable}" is a batch file, which only a shell can run`, {
    field: 'executable',
    expected: 'a program',
    got: executable,
    hint: 'Write `shell: true` if its arguments may be interpreted by the shell.',
  })
}

/** Converts `undefined`, which removes a variable, to `null`, which JSON can represent. */
export function expectEnvironment(given: unknown): Readonly<Record<string, string | null>> {
  const checked: Record<string, string | null> = {}
  for (const [name, value] of Object.entries(expectObject('env', given))) {
    if (value !== undefined && typeof value !== 'string')
      throw invalid(`env.${name}`, 'a string', value)
    if (name === '' || name.includes('=') || name.includes('\u0000'))
      throw invalid(`env.${name}`, 'a variable name', name)
    checked[name] = typeof value === 'string' ? expectNoNul(`env.${name}`, value) : null
  }
  return Object.freeze(checked)
}

/** Copies bytes as base64, so that later changes of the caller's buffer have no effect. */
export function expectStdin(given: unknown): string | { readonly base64: string } {
  if (typeof given === 'string') return given
  if (given instanceof Uint8Array) {
    const { buffer, byteOffset, byteLength } = given
    const base64 = Buffer.from(buffer, byteOffset, byteLength).toString('base64')
    return Object.freeze({ base64 })
  }
  throw invalid('stdin', 'a string or bytes', given)
}

export function expectCaptureStdio(given: unknown): {
  readonly stdout?: string
  readonly stderr?: string
} {
  const files = expectObject('captureStdio', given)
  expectKnownKeys('a task', files, ['stdout', 'stderr'], 'captureStdio.')
  const checked: { stdout?: string; stderr?: string } = {}
  for (const name of ['stdout', 'stderr'] as const) {
    if (files[name] !== undefined) checked[name] = expectPath(`captureStdio.${name}`, files[name])
  }
  return Object.freeze(checked)
}

const interpreters = new Set(
  'python pypy node deno bun tsx uv ruby perl php lua luajit Rscript julia octave java'
    .concat(' sh bash dash zsh ksh fish')
    .split(' '),
)
const launchers = new Set('env nice time timeout nohup mpirun mpiexec srun'.split(' '))
/**
 * Options that are followed by code, such as `-c`. Other letters may precede the `c`, as in `-lc`.
 */
const codeOption = /^(?:-\w{0,4}[ce]|--eval)$/
const moduleOption = /^-(?:\w{0,4}m|jar)$/
/** Options of interpreters that are followed by a value, which may look like a script. */
const valueOptions = new Set(
  '-r --require --import --loader --env-file --conditions -C -W -X -I'.split(' '),
)
/**
 * Matches an extension. An argument after the first is the script only if it has an extension.
 */
const scriptExtension = /\.\w{1,8}$/
const maxNameLength = 200

/**
 * The default name of a program, such as `python3 mesh.py` for `/usr/bin/python3 -u /data/mesh.py
 * 10`, or `sh -c make all` for a shell command. Tasks that differ only in numbers share a name.
 */
export function programName({ executable, arguments: args, shell }: ProgramSpec): string {
  if (shell) return firstWords(executable)
  return toOneLine(defaultName(executable, args)).slice(0, maxNameLength)
}

function defaultName(executable: string, args: readonly string[]): string {
  const base = basename(executable) || executable
  if (launchers.has(base)) {
    const at = args.findIndex(isInterpreter)
    return at === -1 ? base : `${base} ${defaultName(args[at] ?? '', args.slice(at + 1))}`
  }
  const script = isInterpreter(executable) ? findScript(args) : ''
  return script === '' ? base : `${base} ${script}`
}

const isInterpreter = (executable: string): boolean =>
  interpreters.has(basename(executable).replace(/[\d.]+$/, ''))

function findScript(args: readonly string[]): string {
  const firstIndex = args[0] === 'run' ? 1 : 0
  for (let at = firstIndex; at < args.length; at++) {
    const [argument = '', next = ''] = [args[at], args[at + 1]]
    if (codeOption.test(argument)) return `${argument} ${firstWords(next)}`.trim()
    if (moduleOption.test(argument)) return `${argument} ${basename(next)}`.trim()
    if (valueOptions.has(argument)) at++
    else if (argument.startsWith('-')) continue
    else if (at === firstIndex || scriptExtension.test(argument)) return basename(argument)
  }
  return ''
}

/**
 * Matches variable assignments before a command, which are removed because values may be secrets.
 */
const assignments = /^(?:[A-Za-z_]\w*=[^\s;'"`$]*[\s;]+)+/
/** Matches the first word of a command, and up to two more words without digits or shell syntax. */
const commandWords =
  /^[^\s;|&<>(){}'"`$#=]{1,200}(?![^\s;|&<>(){}'"`$#])(?: (?!-)[\p{L}_./-]{1,60}(?= |$)){0,2}/u

const firstWords = (command: string): string =>
  commandWords.exec(toOneLine(command).replace(assignments, ''))?.[0] ?? ''

const toOneLine = (text: string): string => text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim()
