/** The files that `tutti run` accepts, by extension: a script for Node, or a task file. */

import { extname } from 'node:path'
import { ValueError } from '../../foundation/errors.ts'

const scripts = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts']
const lines = ['.jsonl']
const yaml = ['.yaml', '.yml']

export const isTaskFile = (file: string): boolean => [...lines, ...yaml].includes(extname(file))

export const isYamlFile = (file: string): boolean => yaml.includes(extname(file))

/** Throws a `ValueError` for other files; one without an extension is often a program. */
export function kindOf(file: string): 'script' | 'tasks' {
  const ending = extname(file)
  if (isTaskFile(file)) return 'tasks'
  if (scripts.includes(ending)) return 'script'
  const tasks = [...lines, ...yaml].join(', ')
  const which = ending === '' ? 'without an extension' : `that end in ${ending}`
  throw new ValueError(`${file}: tutti run does not know files ${which}`, {
    field: 'file',
    expected: `a script for Node (${scripts.join(', ')}) or a file of tasks (${tasks})`,
    got: file,
    hint: `${acceptedFiles} Any other program is a task with \`executable\`.`,
  })
}

/** The hint for users who gave a different kind of file. */
export const acceptedFiles =
  `Give a script for Node (${scripts.join(', ')}), or a file of tasks: one task per line ` +
  `(${lines.join(', ')}) or a list (${yaml.join(', ')}).`
